//! Running a plan: the server, the timed rounds, the counted pass and the ledger, into a record.

pub mod interrupt;
