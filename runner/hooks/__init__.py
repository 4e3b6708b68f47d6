"""Hooks: functions called before and after each model call and tool use, which may change it."""

from runner.hooks.contexts import LLMCallHookContext as LLMCallHookContext
from runner.hooks.contexts import ToolCallHookContext as ToolCallHookContext
from runner.hooks.registry import *
