"""The crew's code: from what a person types, to files, to a bundle, to a crew in memory."""
