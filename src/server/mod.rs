//! The server of a run: the user's own, a private one, or the built-in responder; and what its own
//! counters say, which is one side of the ledger.
