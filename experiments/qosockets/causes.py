"""Why a figure differs, where that was looked into; the evidence: docs/experiments-qosockets.md."""
