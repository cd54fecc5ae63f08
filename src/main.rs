//! The `systally` program: parse, run the command, print the error once, return the exit code.

fn main() {}
