"""ONNX models as files: where each tensor's bytes lie, and the model put together again around other bytes.

Sources: onnx/onnx.proto (IR version 14), docs/ExternalData.md of onnx. No library for ONNX is imported here; what needs
one runs in a child process.
"""
