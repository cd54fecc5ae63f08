//! Where the user's own server is: the flags of redis-benchmark and server URIs, turned into endpoints.
//!
//! No message here repeats what was typed: a URI that does not parse may still hold a password.

use crate::strategy::contract::Endpoint;
use crate::units::escape;

/// Port of a Redis server when none is named.
pub const DEFAULT_PORT: u16 = 6379;

/// The URI forms that are understood, for messages.
const ACCEPTED: &str =
    "redis://[[user:]password@]host[:port], unix:///path/of/socket or memcached://host[:port]";

/// Port of memcached when none is named.
const MEMCACHED_PORT: u16 = 11211;

/// What the user said about the server, flag by flag.
#[derive(Clone, Default)]
pub struct Target {
    /// `-h`: name or address.
    pub host: Option<String>,
    /// `-p`.
    pub port: Option<u16>,
    /// `-s`: path of a UNIX socket.
    pub socket: Option<String>,
    /// `-u`.
    pub uri: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// `-a` or `REDISCLI_AUTH`.
    pub password: Option<String>,
}

/// The servers that the flags name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Redis, TCP first.
    pub redis: Vec<Endpoint>,
    /// memcached, by `-u memcached://…` or `memcached+unix://…`.
    pub memcached: Vec<Endpoint>,
}

/// An address that cannot be used; always the user's to correct (exit code 2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No `://` in it.
    #[error("the server URI has no scheme; write {ACCEPTED}")]
    NoScheme,
    /// A path, or `unix:` without its slashes.
    #[error(
        "a UNIX socket's URI is unix:// and then the whole path, so three slashes: unix:///path/of/socket"
    )]
    UnixSlashes,
    /// A character with a meaning of its own stands in a user or password.
    #[error(
        "a {0} stands before the @ of the server URI; in a user or password write / as %2F, ? as %3F, # as %23, @ as %40 \
         and % as %25, or leave the password out of the URI and set REDISCLI_AUTH"
    )]
    RawCharacter(char),
    /// A scheme of something else.
    #[error("a server URI cannot begin with '{0}://'; write {ACCEPTED}")]
    Scheme(String),
    /// `rediss://` and its kin.
    #[error(
        "TLS is not supported yet, so '{0}://' cannot be used; give an address where the server listens without TLS"
    )]
    Tls(String),
    /// A part of the URI that does not parse.
    #[error("the {part} in the server URI {wrong}; write {ACCEPTED}")]
    Part {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// A login where there is none.
    #[error("memcached has no login that clients here could use; leave user and password out of its URI")]
    MemcachedLogin,
    /// A database other than 0.
    #[error("the server URI asks for a database other than 0, and clients use database 0; leave it out")]
    Database,
    /// A query parameter nobody knows. It is not repeated: it may be what follows a `?` in a password.
    #[error("the server URI has an unknown parameter after its '?'; known are db, user and password")]
    Parameter,
    /// `-u` beside `-h`, `-p` or `-s`.
    #[error("-u names the server already; give either -u, or -h, -p and -s")]
    Twice,
    /// A user without a password.
    #[error("--user needs a password; give it with -a, or better in the environment as REDISCLI_AUTH")]
    UserAlone,
    /// A flag's value that can never work.
    #[error("the {part} of the server {wrong}")]
    Flag {
        /// Which one.
        part: &'static str,
        /// What is wrong with it.
        wrong: &'static str,
    },
}

impl Target {
    /// The servers that the flags name, by what they are.
    ///
    /// # Errors
    /// As [`Target::endpoints`].
    pub fn named(&self) -> Result<Named, AddressError> {
        match self.uri.as_deref().map(memcached_uri) {
            Some(Some(_)) if self.host.is_some() || self.port.is_some() || self.socket.is_some() => {
                Err(AddressError::Twice)
            }
            Some(Some(endpoint)) => Ok(Named {
                memcached: vec![endpoint?],
                ..Named::default()
            }),
            Some(None) | None => Ok(Named {
                redis: self.endpoints()?,
                ..Named::default()
            }),
        }
    }

    /// The endpoints of a Redis server that the flags name, TCP first; none when no flag names a server. A password alone names
    /// none: it may stand in the environment for other programs.
    ///
    /// # Errors
    /// A URI that does not parse, or flags that contradict each other.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, AddressError> {
        let flags = self.host.is_some() || self.port.is_some() || self.socket.is_some();
        if self.user.is_some() && self.password.is_none() {
            return Err(AddressError::UserAlone);
        }
        if let Some(uri) = &self.uri {
            if flags {
                return Err(AddressError::Twice);
            }
            let endpoint = parse_uri(uri)?;
            let named = endpoint.credentials().1.is_some();
            return Ok(vec![if named {
                endpoint
            } else {
                self.with_credentials(endpoint)
            }]);
        }
        let mut endpoints = Vec::new();
        if self.host.is_some() || self.port.is_some() {
            let host = self.host.as_deref().unwrap_or("127.0.0.1");
            let host = host
                .strip_prefix('[')
                .and_then(|h| h.strip_suffix(']'))
                .unwrap_or(host);
            check_host(host).map_err(|wrong| AddressError::Flag { part: "host", wrong })?;
            let port = self.port.unwrap_or(DEFAULT_PORT);
            if port == 0 {
                return Err(AddressError::Flag {
                    part: "port",
                    wrong: "must be 1 to 65535",
                });
            }
            endpoints.push(self.with_credentials(tcp(host, port)));
        }
        if let Some(path) = &self.socket {
            check_path(path).map_err(|wrong| AddressError::Flag {
                part: "socket path",
                wrong,
            })?;
            endpoints.push(self.with_credentials(unix(path)));
        }
        Ok(endpoints)
    }

    fn with_credentials(&self, mut endpoint: Endpoint) -> Endpoint {
        set_credentials(&mut endpoint, self.user.clone(), self.password.clone());
        endpoint
    }
}

/// Parses a server URI: `redis://` (or `valkey://`) with host and port, `unix://` (or `redis+unix://`)
/// with the path of a socket. User and password are taken out of it, percent-decoded; userinfo without a
/// colon is a password, as redis-cli has it.
///
/// # Errors
/// What is wrong, without any of the URI's text beyond its scheme and parameter names.
pub fn parse_uri(uri: &str) -> Result<Endpoint, AddressError> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        let path = uri.starts_with('/')
            || ["unix:", "redis+unix:"]
                .iter()
                .any(|begin| uri.starts_with(begin));
        return Err(if path {
            AddressError::UnixSlashes
        } else {
            AddressError::NoScheme
        });
    };
    let transport = match scheme.to_ascii_lowercase().as_str() {
        "redis" | "valkey" => parse_tcp,
        "unix" | "redis+unix" | "valkey+unix" => parse_unix,
        "rediss" | "valkeys" => return Err(AddressError::Tls(escape(scheme, 20))),
        // What precedes the colon of `user:secret://` could be anything, so only a plain word is shown.
        other if other.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+') => {
            return Err(AddressError::Scheme(escape(scheme, 20)));
        }
        _ => return Err(AddressError::NoScheme),
    };
    if let Some(raw) = raw_character(rest, scheme.to_ascii_lowercase().ends_with("unix")) {
        return Err(AddressError::RawCharacter(raw));
    }
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, ""), |(before, query)| (before, query));
    // The last @ before the path ends the userinfo: passwords pasted unencoded may hold one of their own.
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (userinfo, place) = match rest[..authority_end].rfind('@') {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let mut endpoint = transport(place)?;
    let (mut user, mut password) = (None, None);
    if let Some(userinfo) = userinfo {
        let (name, secret) = userinfo.split_once(':').map_or(("", userinfo), |pair| pair);
        user = Some(decode(name, "user")?).filter(|name| !name.is_empty());
        password = Some(decode(secret, "password")?).filter(|secret| !secret.is_empty());
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "db" => check_database(value)?,
            "user" | "username" => user = Some(decode(value, "user")?),
            "pass" | "password" => password = Some(decode(value, "password")?),
            _ => return Err(AddressError::Parameter),
        }
    }
    if user.is_some() && password.is_none() {
        return Err(AddressError::Part {
            part: "user",
            wrong: "has no password with it",
        });
    }
    set_credentials(&mut endpoint, user, password);
    Ok(endpoint)
}

/// What ends the userinfo of a URI though it was meant as a part of a password: a `/`, `?` or `#` with the `@`
/// behind it. The path of a socket and the parameters may hold an `@` of their own.
fn raw_character(rest: &str, unix: bool) -> Option<char> {
    let at = rest.find(['/', '?', '#'])?;
    let (authority, behind) = rest.split_at(at);
    let ends = behind.chars().next()?;
    if !behind.contains('@') || (unix && authority.contains('@')) {
        return None;
    }
    let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
    let known = ["db=", "user", "pass"].iter().any(|name| query.starts_with(name));
    let is_fine = match ends {
        '/' if unix && authority.is_empty() => true,
        '/' | '?' => !path.contains('@') && known,
        _ => false,
    };
    (!is_fine).then_some(ends)
}

/// Parses `memcached://host[:port]` or `memcached+unix:///path`; `None` for a URI of anything else.
fn memcached_uri(uri: &str) -> Option<Result<Endpoint, AddressError>> {
    let (scheme, rest) = uri.split_once("://")?;
    let parse: fn(&str) -> Result<Endpoint, AddressError> = match scheme.to_ascii_lowercase().as_str() {
        "memcached" => |place| parse_authority(place.trim_end_matches('/'), MEMCACHED_PORT),
        "memcached+unix" => parse_unix,
        _ => return None,
    };
    Some(if rest.contains(['@', '?', '#']) {
        Err(AddressError::MemcachedLogin)
    } else {
        parse(rest)
    })
}

fn parse_tcp(place: &str) -> Result<Endpoint, AddressError> {
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    check_database(database)?;
    parse_authority(authority, DEFAULT_PORT)
}

fn parse_authority(authority: &str, default_port: u16) -> Result<Endpoint, AddressError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(AddressError::Part {
            part: "host",
            wrong: "has a [ without its ]",
        })?;
        (host, after)
    } else {
        authority
            .find(':')
            .map_or((authority, ""), |colon| authority.split_at(colon))
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        Some("") => default_port,
        digits => digits
            .and_then(|digits| digits.parse().ok())
            .filter(|port| *port > 0)
            .ok_or(AddressError::Part {
                part: "port",
                wrong: "is not a number from 1 to 65535",
            })?,
    };
    let host = decode(host, "host")?;
    let host = if host.is_empty() { "127.0.0.1" } else { &host };
    check_host(host).map_err(|wrong| AddressError::Part { part: "host", wrong })?;
    Ok(tcp(host, port))
}

fn parse_unix(place: &str) -> Result<Endpoint, AddressError> {
    let path = decode(place, "socket path")?;
    check_path(&path).map_err(|wrong| AddressError::Part {
        part: "socket path",
        wrong,
    })?;
    Ok(unix(&path))
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp {
        host: host.to_owned(),
        port,
        user: None,
        password: None,
    }
}

fn unix(path: &str) -> Endpoint {
    Endpoint::Unix {
        path: path.to_owned(),
        user: None,
        password: None,
    }
}

fn set_credentials(endpoint: &mut Endpoint, new_user: Option<String>, new_password: Option<String>) {
    match endpoint {
        Endpoint::Tcp { user, password, .. } | Endpoint::Unix { user, password, .. } => {
            *user = new_user;
            *password = new_password;
        }
    }
}

fn check_database(text: &str) -> Result<(), AddressError> {
    if text.bytes().all(|b| b == b'0') {
        Ok(())
    } else {
        Err(AddressError::Database)
    }
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        Err("is empty")
    } else if host.len() > 255 {
        Err("is longer than a host name can be")
    } else if host
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '/')
    {
        Err("holds characters that no host name has")
    } else {
        Ok(())
    }
}

fn check_path(path: &str) -> Result<(), &'static str> {
    // sun_path in sockaddr_un has 108 bytes with its terminating zero (unix(7)).
    if path.is_empty() {
        Err("is empty")
    } else if path.contains('\0') {
        Err("holds a zero byte")
    } else if path.len() > super::SUN_PATH_MAX {
        Err("is longer than the 107 bytes that a UNIX socket's path can have")
    } else {
        Ok(())
    }
}

fn decode(text: &str, part: &'static str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(AddressError::Part {
                part,
                wrong: "has a % that is not followed by two hex digits (a % itself is written %25)",
            });
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Part {
        part,
        wrong: "is not UTF-8",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(uri: &str) -> (String, Option<String>, Option<String>) {
        let endpoint = parse_uri(uri).unwrap_or_else(|e| panic!("{uri}: {e}"));
        let (user, password) = endpoint.credentials();
        (
            endpoint.to_string(),
            user.map(Into::into),
            password.map(Into::into),
        )
    }

    fn plain(uri: &str) -> String {
        let (address, user, password) = parts(uri);
        assert_eq!((user, password), (None, None), "{uri}");
        address
    }

    #[test]
    fn addresses_without_credentials() {
        assert_eq!(plain("redis://db.example"), "db.example:6379");
        assert_eq!(plain("redis://db.example:6380/0"), "db.example:6380");
        assert_eq!(plain("REDIS://127.0.0.1:1/"), "127.0.0.1:1");
        assert_eq!(plain("valkey://[::1]:7000"), "[::1]:7000");
        assert_eq!(plain("redis://[fe80::1]"), "[fe80::1]:6379");
        assert_eq!(plain("redis://:7001"), "127.0.0.1:7001");
        assert_eq!(
            plain("unix:///run/redis/redis.sock"),
            "unix:/run/redis/redis.sock"
        );
        assert_eq!(plain("redis+unix:///tmp/a%20b.sock?db=0"), "unix:/tmp/a b.sock");
        assert_eq!(plain("unix://relative.sock"), "unix:relative.sock");
    }

    #[test]
    fn credentials_are_taken_out_and_decoded() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            parts("redis://:s3%40cret@h"),
            ("h:6379".into(), None, some("s3@cret"))
        );
        assert_eq!(parts("redis://s3cret@h:1"), ("h:1".into(), None, some("s3cret")));
        assert_eq!(
            parts("redis://joe:a:b@h"),
            ("h:6379".into(), some("joe"), some("a:b"))
        );
        assert_eq!(
            parts("redis://joe:p@ss@h"),
            ("h:6379".into(), some("joe"), some("p@ss"))
        );
        assert_eq!(
            parts("unix://joe:pw@/run/r.sock"),
            ("unix:/run/r.sock".into(), some("joe"), some("pw"))
        );
        assert_eq!(
            parts("unix:///r.sock?user=joe&password=p%26w"),
            ("unix:/r.sock".into(), some("joe"), some("p&w"))
        );
    }

    #[test]
    fn wrong_uris_say_what_is_accepted() {
        for (uri, expected) in [
            ("127.0.0.1:6379", "has no scheme"),
            ("http://h", "cannot begin with 'http://'"),
            ("rediss://h", "TLS is not supported yet"),
            ("valkeys://h", "TLS is not supported yet"),
            ("redis://h:0", "port"),
            ("redis://h:65536", "port"),
            ("redis://h:x", "port"),
            ("redis://[::1", "host"),
            ("redis://[::1]x", "port"),
            ("redis://h/1", "database"),
            ("redis://h?db=2", "database"),
            ("redis://h?timeout=2", "unknown parameter"),
            ("redis://a b", "host"),
            ("redis://h%00", "host"),
            ("redis://%zz", "two hex digits"),
            ("redis://%ff", "not UTF-8"),
            ("redis://joe:@h", "no password"),
            ("unix://", "is empty"),
            ("unix:///a%00b", "zero byte"),
        ] {
            let error = parse_uri(uri).expect_err(uri).to_string();
            assert!(error.contains(expected), "{uri}: {error}");
        }
        let long = format!("unix:///{}", "x".repeat(107));
        assert!(
            parse_uri(&long)
                .expect_err("long")
                .to_string()
                .contains("107 bytes")
        );
    }

    #[test]
    fn what_a_password_needs_is_said_without_it() {
        for (uri, raw) in [
            ("redis://:sec/ret@h", '/'),
            ("redis://joe:sec?ret@h", '?'),
            ("redis://:1234#ret@h", '#'),
            ("redis://:s@c/ret@h", '/'),
            ("unix://:sec/ret@/run/r.sock", '/'),
            ("unix://joe:12#ret@/run/r.sock", '#'),
        ] {
            assert_eq!(parse_uri(uri), Err(AddressError::RawCharacter(raw)), "{uri}");
            let said = AddressError::RawCharacter(raw).to_string();
            assert!(said.contains("%2F") && said.contains("REDISCLI_AUTH"), "{said}");
        }
        let said = parse_uri("redis://:s%cret@h").unwrap_err().to_string();
        assert!(said.contains("%25") && !said.contains("cret"), "{said}");
        // An @ elsewhere has no such meaning.
        assert_eq!(plain("unix:///run/a@b.sock"), "unix:/run/a@b.sock");
        let (address, _, password) = parts("redis://h/0?password=a@b");
        assert_eq!((address.as_str(), password.as_deref()), ("h:6379", Some("a@b")));
        for path in ["unix:/run/r.sock", "/run/r.sock", "redis+unix:/run/r.sock"] {
            let said = parse_uri(path).unwrap_err().to_string();
            assert!(said.contains("unix:///path/of/socket"), "{said}");
        }
    }

    #[test]
    fn memcached_has_a_scheme_of_its_own() {
        let named = |uri: &str| {
            let target = Target {
                uri: Some(uri.into()),
                ..Target::default()
            };
            target.named()
        };
        let shown = |uri: &str| named(uri).unwrap().memcached[0].to_string();
        assert_eq!(shown("memcached://cache.example"), "cache.example:11211");
        assert_eq!(shown("MEMCACHED://[::1]:11212/"), "[::1]:11212");
        assert_eq!(shown("memcached+unix:///run/m.sock"), "unix:/run/m.sock");
        assert!(named("redis://h").unwrap().memcached.is_empty());
        assert_eq!(named("memcached://joe:pw@h"), Err(AddressError::MemcachedLogin));
        assert!(named("memcached://h:0").is_err());
    }

    #[test]
    fn flags_make_both_transports() {
        let target = Target {
            host: Some("[::1]".into()),
            socket: Some("/r.sock".into()),
            user: Some("joe".into()),
            password: Some("hunter2".into()),
            ..Target::default()
        };
        let endpoints = target.endpoints().unwrap();
        assert_eq!(format!("{endpoints:?}"), "[[::1]:6379, unix:/r.sock]");
        assert!(
            endpoints
                .iter()
                .all(|e| e.credentials() == (Some("joe"), Some("hunter2")))
        );
        let only_port = Target {
            port: Some(7),
            ..Target::default()
        };
        assert_eq!(only_port.endpoints().unwrap()[0].to_string(), "127.0.0.1:7");
        let password_only = Target {
            password: Some("x".into()),
            ..Target::default()
        };
        assert_eq!(password_only.endpoints(), Ok(Vec::new()));
    }

    #[test]
    fn flags_that_contradict_are_refused() {
        let twice = Target {
            uri: Some("redis://h".into()),
            port: Some(1),
            ..Target::default()
        };
        assert_eq!(twice.endpoints(), Err(AddressError::Twice));
        let alone = Target {
            host: Some("h".into()),
            user: Some("joe".into()),
            ..Target::default()
        };
        assert_eq!(alone.endpoints(), Err(AddressError::UserAlone));
        let flag = Target {
            uri: Some("redis://h".into()),
            password: Some("pw".into()),
            ..Target::default()
        };
        assert_eq!(flag.endpoints().unwrap()[0].credentials().1, Some("pw"));
        let uri_wins = Target {
            uri: Some("redis://:a@h".into()),
            password: Some("b".into()),
            ..Target::default()
        };
        assert_eq!(uri_wins.endpoints().unwrap()[0].credentials().1, Some("a"));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_secret_is_repeated(uri in "(redis|unix|http|re dis)?:?/{0,3}[^/]{0,6}:SECRET@?.{0,30}") {
            if let Err(error) = parse_uri(&uri) {
                prop_assert!(!error.to_string().contains("SECRET"), "{}", error);
            }
        }
    }
}
