//! Error numbers of other systems: the same number means something else on each.

/// Whose numbers a trace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// macOS (`sys/errno.h` of Darwin).
    Mac,
    /// FreeBSD, NetBSD, OpenBSD: the numbers up to 64 are those of 4.4BSD in all of them.
    Bsd,
    /// Solaris and illumos.
    Solaris,
}

/// Numbers that the BSDs and Darwin share (4.4BSD).
const BSD: [(u32, &str); 76] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EDEADLK"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (15, "ENOTBLK"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (33, "EDOM"),
    (34, "ERANGE"),
    (35, "EAGAIN"),
    (36, "EINPROGRESS"),
    (37, "EALREADY"),
    (38, "ENOTSOCK"),
    (39, "EDESTADDRREQ"),
    (40, "EMSGSIZE"),
    (41, "EPROTOTYPE"),
    (42, "ENOPROTOOPT"),
    (43, "EPROTONOSUPPORT"),
    (44, "ESOCKTNOSUPPORT"),
    (45, "EOPNOTSUPP"),
    (46, "EPFNOSUPPORT"),
    (47, "EAFNOSUPPORT"),
    (48, "EADDRINUSE"),
    (49, "EADDRNOTAVAIL"),
    (50, "ENETDOWN"),
    (51, "ENETUNREACH"),
    (52, "ENETRESET"),
    (53, "ECONNABORTED"),
    (54, "ECONNRESET"),
    (55, "ENOBUFS"),
    (56, "EISCONN"),
    (57, "ENOTCONN"),
    (58, "ESHUTDOWN"),
    (59, "ETOOMANYREFS"),
    (60, "ETIMEDOUT"),
    (61, "ECONNREFUSED"),
    (62, "ELOOP"),
    (63, "ENAMETOOLONG"),
    (64, "EHOSTDOWN"),
    (65, "EHOSTUNREACH"),
    (66, "ENOTEMPTY"),
    (67, "EPROCLIM"),
    (68, "EUSERS"),
    (69, "EDQUOT"),
    (70, "ESTALE"),
    (71, "EREMOTE"),
    (77, "ENOLCK"),
    (78, "ENOSYS"),
    (79, "EFTYPE"),
    (80, "EAUTH"),
    (81, "ENEEDAUTH"),
];

/// Solaris: System V numbers, sockets from 95 on (`sys/errno.h` of illumos).
const SOLARIS: [(u32, &str); 41] = [
    (11, "EAGAIN"),
    (45, "EDEADLK"),
    (46, "ENOLCK"),
    (48, "ENOTSUP"),
    (62, "ETIME"),
    (71, "EPROTO"),
    (78, "ENAMETOOLONG"),
    (79, "EOVERFLOW"),
    (89, "ENOSYS"),
    (90, "ELOOP"),
    (91, "ERESTART"),
    (92, "ESTRPIPE"),
    (93, "ENOTEMPTY"),
    (94, "EUSERS"),
    (95, "ENOTSOCK"),
    (96, "EDESTADDRREQ"),
    (97, "EMSGSIZE"),
    (98, "EPROTOTYPE"),
    (99, "ENOPROTOOPT"),
    (120, "EPROTONOSUPPORT"),
    (121, "ESOCKTNOSUPPORT"),
    (122, "EOPNOTSUPP"),
    (123, "EPFNOSUPPORT"),
    (124, "EAFNOSUPPORT"),
    (125, "EADDRINUSE"),
    (126, "EADDRNOTAVAIL"),
    (127, "ENETDOWN"),
    (128, "ENETUNREACH"),
    (129, "ENETRESET"),
    (130, "ECONNABORTED"),
    (131, "ECONNRESET"),
    (132, "ENOBUFS"),
    (133, "EISCONN"),
    (134, "ENOTCONN"),
    (143, "ESHUTDOWN"),
    (145, "ETIMEDOUT"),
    (146, "ECONNREFUSED"),
    (147, "EHOSTDOWN"),
    (148, "EHOSTUNREACH"),
    (149, "EALREADY"),
    (150, "EINPROGRESS"),
];

/// The name of an error number on a system.
pub(crate) fn name_of(system: System, number: u32) -> Option<&'static str> {
    let find =
        |table: &[(u32, &'static str)]| table.iter().find(|(n, _)| *n == number).map(|(_, name)| *name);
    match system {
        System::Mac => match number {
            84 => Some("EOVERFLOW"),
            85 => Some("EBADEXEC"),
            89 => Some("ECANCELED"),
            92 => Some("EILSEQ"),
            102 => Some("EOPNOTSUPP"),
            _ => find(&BSD),
        },
        System::Bsd => find(&BSD),
        // The first 34 are the same everywhere but for 11.
        System::Solaris => find(&SOLARIS).or_else(|| if number <= 34 { find(&BSD) } else { None }),
    }
}

impl System {
    fn label(self) -> &'static str {
        match self {
            System::Mac => "macOS",
            System::Bsd => "BSD",
            System::Solaris => "Solaris",
        }
    }
}

/// How an error of another system is written in a row: `ECONNREFUSED (BSD 61)`.
pub(crate) fn label(system: System, number: u32) -> String {
    match name_of(system, number) {
        Some(name) => format!("{name} ({} {number})", system.label()),
        None => format!("errno {number} ({})", system.label()),
    }
}

/// The bare name in such a label.
pub(crate) fn bare(label: &str) -> &str {
    if label.starts_with("errno ") {
        return label;
    }
    label.split(' ').next().unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_means_something_else_elsewhere() {
        assert_eq!(label(System::Mac, 49), "EADDRNOTAVAIL (macOS 49)");
        assert_eq!(label(System::Mac, 35), "EAGAIN (macOS 35)");
        assert_eq!(label(System::Bsd, 61), "ECONNREFUSED (BSD 61)");
        assert_eq!(label(System::Solaris, 146), "ECONNREFUSED (Solaris 146)");
        assert_eq!(label(System::Solaris, 11), "EAGAIN (Solaris 11)");
        assert_eq!(label(System::Solaris, 2), "ENOENT (Solaris 2)");
        assert_eq!(label(System::Bsd, 999), "errno 999 (BSD)");
        assert_eq!(bare("EAGAIN (macOS 35)"), "EAGAIN");
    }

    #[test]
    fn no_number_is_listed_twice() {
        for table in [&BSD[..], &SOLARIS[..]] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
