//! Transparent huge pages: with `always`, a server that forks to save copies in larger pieces and stalls.
//! A matter of latency, never of failure.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::LimitReading;

pub(super) struct Hugepages;

impl Limit for Hugepages {
    fn id(&self) -> &'static str {
        "hugepages"
    }

    fn title(&self) -> &'static str {
        "transparent huge pages"
    }

    fn unit(&self) -> Unit {
        Unit::Of("pages")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        const PATH: &str = "sys/kernel/mm/transparent_hugepage/enabled";
        let reading = Reading::of(
            self.id(),
            "machine",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        )
        .fix(
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            "transparent_hugepage=madvise on the kernel's command line",
            "not namespaced: set it on the host",
        );
        if !load.same_host {
            return reading.unknown("the server is on another machine");
        }
        match root.read(PATH) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => reading.unknown("the kernel does not tell"),
            Err(e) => reading.unknown(e.to_string()),
            Ok(text) if text.contains("[always]") => {
                reading.not_applicable("always: expect stalls while the server saves in the background")
            }
            Ok(text) if text.contains("[madvise]") || text.contains("[never]") => {
                reading.not_applicable("not forced on: no stalls from it")
            }
            Ok(_) => reading.unknown("the kernel's answer is not understood"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn it_is_told_and_never_decides() {
        let tree = |text: &str| Tree::new().with("sys/kernel/mm/transparent_hugepage/enabled", text);
        let check = |tree: Tree| Hugepages.check(&tree.root(), &Load::default());
        assert!(check(tree("[always] madvise never\n")).effect.contains("stalls"));
        assert_eq!(
            check(tree("always [madvise] never\n")).verdict,
            Verdict::NotApplicable
        );
        assert_eq!(check(tree("nonsense\n")).verdict, Verdict::Unknown);
    }
}
