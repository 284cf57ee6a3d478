"""Every error the SDK raises on purpose.

AssayError
├── ContractError          an event, topic or schema is not what the catalogue says
│   └── EnvelopeError      a record's CloudEvents attributes are missing or malformed
├── BrokerError            Kafka cannot be reached, refuses a record, or lacks a topic
│   └── RecordTooLarge     one record is larger than its topic takes
├── AddressError           not a wallet address (see assay.wallet)
├── SubmissionError        a wallet event that cannot be accepted (see assay.submission)
└── AttestationError       a signature, key or signed message is not acceptable
"""

from __future__ import annotations


class AssayError(Exception):
    """Root of the tree; the message is written for a person."""


class ContractError(AssayError):
    """An event, topic or schema is not what the catalogue says."""


class EnvelopeError(ContractError):
    """A record's CloudEvents attributes are missing or malformed."""


class BrokerError(AssayError):
    """Kafka cannot be reached, refuses a record, or lacks a topic."""


class RecordTooLarge(BrokerError):
    """One record is larger than the topic takes; others are not concerned."""
