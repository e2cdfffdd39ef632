"""Convert, verify and audit model artifacts without running the code they carry."""

__version__ = "0.1.0"
