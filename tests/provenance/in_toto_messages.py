"""What in-toto's own protobufs make of a statement."""

from __future__ import annotations

from typing import Any

from artifactkit.provenance import statement as st


def as_message(statement: dict[str, Any]) -> Any:
    """The predicate as a protobuf message, the statement validated. A field that the messages lack is an error."""
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    message = json_format.ParseDict(statement, statement_pb2.Statement())
    Statement.copy_from_pb(message).validate()
    kinds = {st.PROVENANCE_TYPE: provenance_pb2.Provenance, st.VERDICT_TYPE: test_result_pb2.TestResult}
    return json_format.ParseDict(statement["predicate"], kinds[statement["predicateType"]]())
