//! Error numbers, including the kernel-internal restart codes that a tracer sees and programs do not.

use std::borrow::Cow;

/// A positive error number as the kernel returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Stands for failures that a source counts without telling them apart.
    pub const OTHER: Errno = Errno(0);

    /// Whether this is one of the codes with which the kernel tells itself to restart the call after a
    /// signal (`include/linux/errno.h`): visible to tracers only, and not a failure.
    pub fn is_restart(self) -> bool {
        matches!(self.0, 512..=514 | 516)
    }

    /// The number of a symbolic name.
    pub fn by_name(name: &str) -> Option<Errno> {
        // Linux has no numbers between 134 and 511, and the kernel's own end with 530.
        (1..=133)
            .chain(512..=530)
            .map(Errno)
            .find(|errno| errno.name() == name)
    }

    /// The symbolic name, or `errno N` for a number without one.
    pub fn name(self) -> Cow<'static, str> {
        let internal = match self.0 {
            512 => Some("ERESTARTSYS"),
            513 => Some("ERESTARTNOINTR"),
            514 => Some("ERESTARTNOHAND"),
            515 => Some("ENOIOCTLCMD"),
            516 => Some("ERESTART_RESTARTBLOCK"),
            524 => Some("ENOTSUPP"),
            0 => Some("other"),
            _ => None,
        };
        if let Some(name) = internal {
            return Cow::Borrowed(name);
        }
        match nix::errno::Errno::from_raw(self.0) {
            nix::errno::Errno::UnknownErrno => Cow::Owned(format!("errno {}", self.0)),
            known => Cow::Owned(format!("{known:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_restarts() {
        assert_eq!(Errno(11).name(), "EAGAIN");
        assert_eq!(Errno(115).name(), "EINPROGRESS");
        assert_eq!(Errno(512).name(), "ERESTARTSYS");
        assert_eq!(Errno(4000).name(), "errno 4000");
        assert!(Errno(516).is_restart());
        assert!(!Errno(515).is_restart());
        assert!(!Errno(4).is_restart());
        assert_eq!(Errno::by_name("EAGAIN"), Some(Errno(11)));
        assert_eq!(Errno::by_name("ERESTARTSYS"), Some(Errno(512)));
        assert_eq!(Errno::by_name("EHWPOISON"), Some(Errno(133)));
        assert_eq!(Errno::by_name("ENOTHING"), None);
    }
}
