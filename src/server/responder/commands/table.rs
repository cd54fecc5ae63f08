//! The table of commands.

use super::{Call, Outcome, config, connection, keys, strings, transaction};

/// One command, or one subcommand with its container's name before it.
pub(in super::super) struct Spec {
    /// In lower case, as statistics name it.
    pub(in super::super) name: &'static str,
    /// Words of a request, the name included; negative for at least so many.
    pub(super) arity: i64,
    /// As `COMMAND` shows them.
    pub(super) flags: &'static [&'static str],
    /// First key, last key and step, as `COMMAND` shows them.
    pub(super) keys: (i64, i64, i64),
    /// What it does, for `COMMAND DOCS`.
    pub(super) summary: &'static str,
    /// Its group, for `COMMAND DOCS`.
    pub(super) group: &'static str,
    /// Whether it may be used before authentication.
    pub(super) stranger: bool,
    /// Whether it is executed inside a transaction instead of being queued.
    pub(super) immediate: bool,
    /// Whether its second word is a subcommand.
    pub(super) container: bool,
    /// Does it.
    pub(super) run: fn(&mut Call<'_, '_>) -> Outcome,
}

impl Spec {
    pub(super) fn accepts(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if self.arity < 0 {
            words >= -self.arity
        } else {
            words == self.arity
        }
    }

    const fn new(
        name: &'static str,
        arity: i64,
        run: fn(&mut Call<'_, '_>) -> Outcome,
        summary: &'static str,
    ) -> Spec {
        Spec {
            name,
            arity,
            flags: &["fast"],
            keys: (0, 0, 0),
            summary,
            group: "connection",
            stranger: false,
            immediate: false,
            container: false,
            run,
        }
    }

    const fn reads(self, keys: (i64, i64, i64)) -> Spec {
        Spec {
            flags: &["readonly", "fast"],
            keys,
            ..self
        }
    }

    const fn writes(self, keys: (i64, i64, i64)) -> Spec {
        Spec {
            flags: &["write", "fast"],
            keys,
            ..self
        }
    }

    const fn group(self, group: &'static str) -> Spec {
        Spec { group, ..self }
    }

    const fn admin(self) -> Spec {
        Spec {
            flags: &["admin", "loading", "stale"],
            group: "server",
            ..self
        }
    }

    const fn stranger(self) -> Spec {
        Spec {
            flags: &["noscript", "loading", "stale", "fast", "no_auth"],
            stranger: true,
            ..self
        }
    }

    const fn immediate(self) -> Spec {
        Spec {
            immediate: true,
            ..self
        }
    }

    const fn container(self) -> Spec {
        Spec {
            container: true,
            ..self
        }
    }
}

/// The keys of a command: none but the first, all from the first on, every other one.
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);

/// All commands. The search begins at the top, so those of a load stand first.
pub(in super::super) static TABLE: [Spec; 55] = [
    Spec::new("get", 2, strings::get, "Returns the value of a key.")
        .reads(ONE)
        .group("string"),
    Spec::new("set", -3, strings::set, "Sets the value of a key.")
        .writes(ONE)
        .group("string"),
    Spec::new("ping", -1, connection::ping, "Answers PONG, or its argument."),
    Spec::new("incr", 2, keys::incr, "Adds one to a number.")
        .writes(ONE)
        .group("string"),
    Spec::new("del", -2, keys::del, "Removes keys.")
        .writes(ALL)
        .group("generic"),
    Spec::new("mget", -2, strings::mget, "Returns the values of several keys.")
        .reads(ALL)
        .group("string"),
    Spec::new("mset", -3, strings::mset, "Sets the values of several keys.")
        .writes(PAIRS)
        .group("string"),
    Spec::new("exists", -2, keys::exists, "Counts which of the keys exist.")
        .reads(ALL)
        .group("generic"),
    Spec::new("expire", -3, keys::expire, "Sets when a key expires, in seconds.")
        .writes(ONE)
        .group("generic"),
    Spec::new(
        "pexpire",
        -3,
        keys::pexpire,
        "Sets when a key expires, in milliseconds.",
    )
    .writes(ONE)
    .group("generic"),
    Spec::new("ttl", 2, keys::ttl, "Returns a key's time to expire, in seconds.")
        .reads(ONE)
        .group("generic"),
    Spec::new(
        "pttl",
        2,
        keys::pttl,
        "Returns a key's time to expire, in milliseconds.",
    )
    .reads(ONE)
    .group("generic"),
    Spec::new("unlink", -2, keys::del, "Removes keys.")
        .writes(ALL)
        .group("generic"),
    Spec::new("incrby", 3, keys::incrby, "Adds to a number.")
        .writes(ONE)
        .group("string"),
    Spec::new("decr", 2, keys::decr, "Takes one from a number.")
        .writes(ONE)
        .group("string"),
    Spec::new("decrby", 3, keys::decrby, "Takes from a number.")
        .writes(ONE)
        .group("string"),
    Spec::new("setnx", 3, strings::setnx, "Sets a key that does not exist.")
        .writes(ONE)
        .group("string"),
    Spec::new(
        "setex",
        4,
        strings::setex,
        "Sets a key and when it expires, in seconds.",
    )
    .writes(ONE)
    .group("string"),
    Spec::new(
        "psetex",
        4,
        strings::psetex,
        "Sets a key and when it expires, in milliseconds.",
    )
    .writes(ONE)
    .group("string"),
    Spec::new("echo", 2, connection::echo, "Returns its argument."),
    Spec::new(
        "select",
        2,
        connection::select,
        "Changes the database of the connection.",
    ),
    Spec::new("multi", 1, transaction::multi, "Begins a transaction.")
        .immediate()
        .group("transactions"),
    Spec::new("exec", 1, transaction::exec, "Executes a transaction.")
        .immediate()
        .group("transactions"),
    Spec::new("discard", 1, transaction::discard, "Drops a transaction.")
        .immediate()
        .group("transactions"),
    Spec::new("auth", -2, connection::auth, "Authenticates the connection.").stranger(),
    Spec::new(
        "hello",
        -1,
        connection::hello,
        "Greets the server and chooses the protocol.",
    )
    .stranger(),
    Spec::new("quit", -1, connection::quit, "Closes the connection.")
        .stranger()
        .immediate(),
    Spec::new("reset", 1, connection::reset, "Makes the connection as new.")
        .stranger()
        .immediate(),
    Spec::new("dbsize", 1, keys::dbsize, "Counts the keys of the database.")
        .reads((0, 0, 0))
        .group("server"),
    Spec::new("flushdb", -1, keys::flushdb, "Empties the database.")
        .writes((0, 0, 0))
        .group("server"),
    Spec::new("flushall", -1, keys::flushall, "Empties all databases.")
        .writes((0, 0, 0))
        .group("server"),
    Spec::new("info", -1, config::info, "Returns facts about the server.").admin(),
    Spec::new("config", -2, config::help, "Reads and changes settings.")
        .admin()
        .container(),
    Spec::new("config|get", -3, config::get, "Returns settings.").admin(),
    Spec::new("config|set", -4, config::set, "Changes settings.").admin(),
    Spec::new(
        "config|resetstat",
        2,
        config::reset_stat,
        "Sets the statistics to zero.",
    )
    .admin(),
    Spec::new("config|help", 2, config::help, "Says what there is.").admin(),
    Spec::new("command", -1, config::command, "Describes all commands.")
        .admin()
        .container(),
    Spec::new("command|count", 2, config::command_count, "Counts the commands.").admin(),
    Spec::new("command|list", -2, config::command_list, "Names the commands.").admin(),
    Spec::new(
        "command|info",
        -2,
        config::command_info,
        "Describes some commands.",
    )
    .admin(),
    Spec::new("command|docs", -2, config::command_docs, "Explains commands.").admin(),
    Spec::new("command|help", 2, config::help, "Says what there is.").admin(),
    Spec::new("client", -2, config::help, "Facts about connections.")
        .admin()
        .container(),
    Spec::new(
        "client|id",
        2,
        connection::client_id,
        "Returns the connection's number.",
    ),
    Spec::new(
        "client|getname",
        2,
        connection::client_getname,
        "Returns the connection's name.",
    ),
    Spec::new(
        "client|setname",
        3,
        connection::client_setname,
        "Names the connection.",
    ),
    Spec::new(
        "client|setinfo",
        4,
        connection::client_setinfo,
        "Tells the client library.",
    ),
    Spec::new(
        "client|info",
        2,
        connection::client_info,
        "Describes the connection.",
    ),
    Spec::new(
        "client|list",
        -2,
        connection::client_list,
        "Describes connections.",
    )
    .admin(),
    Spec::new(
        "client|reply",
        3,
        connection::client_reply,
        "Says whether replies are sent.",
    ),
    Spec::new(
        "client|no-evict",
        3,
        connection::client_on_off,
        "Accepted, and changes nothing.",
    ),
    Spec::new(
        "client|no-touch",
        3,
        connection::client_on_off,
        "Accepted, and changes nothing.",
    ),
    Spec::new("client|help", 2, config::help, "Says what there is."),
    Spec::new("time", 1, config::time, "Returns the server's time.").group("server"),
];

/// The place of a command, or of a subcommand of `container`, whatever its case.
pub(super) fn position(name: &[u8], container: Option<&str>) -> Option<usize> {
    TABLE.iter().position(|spec| {
        let own = match container {
            None => spec.name,
            Some(container) => {
                match spec
                    .name
                    .strip_prefix(container)
                    .and_then(|rest| rest.strip_prefix('|'))
                {
                    Some(rest) => rest,
                    None => return false,
                }
            }
        };
        // A name with a bar in it is not a command by itself.
        own.len() == name.len() && own.as_bytes().eq_ignore_ascii_case(name) && !own.contains('|')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_unique() {
        let names: std::collections::BTreeSet<&str> = TABLE.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), TABLE.len());
        assert!(names.iter().all(|name| *name == name.to_lowercase()));
    }

    #[test]
    fn every_subcommand_has_its_container() {
        for spec in &TABLE {
            if let Some((container, _)) = spec.name.split_once('|') {
                let at = position(container.as_bytes(), None).expect(spec.name);
                assert!(TABLE[at].container, "{}", spec.name);
            }
        }
    }

    #[test]
    fn a_name_is_found_in_any_case_and_a_bar_is_not_one() {
        assert_eq!(position(b"GeT", None), Some(0));
        assert_eq!(position(b"config|get", None), None);
        assert_eq!(
            position(b"GET", Some("config")).map(|at| TABLE[at].name),
            Some("config|get")
        );
        assert_eq!(position(b"", None), None);
    }
}
