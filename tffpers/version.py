"""The version of tffpers."""

VERSION = '0.1.0'
