"""The crew's code: finds its files, packs them into a bundle, and loads the crew from it."""
