"""Builds the package; everything is declared in setup.cfg."""

import setuptools

setuptools.setup()
