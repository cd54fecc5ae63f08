//! What a reader of the rows must know of the maps they come from.

use std::collections::BTreeMap;

use super::super::model::Imported;
use super::super::text;
use super::maps::Maps;
use super::meaning::{Meaning, Shape, meaning};
use crate::units::Grouped;

impl Maps {
    pub(super) fn notes(&self, shapes: &BTreeMap<&[u8], Shape>, counting: &[&[u8]], imported: &mut Imported) {
        let shown = |name: &[u8]| format!("@{}", text::shown(name, 40));
        if counting.len() > 1 {
            imported.notes.push(
                "several maps count calls; each is a table of its own and they are not added up".to_owned(),
            );
        }
        for (name, histogram) in &self.histograms {
            imported.values.insert(shown(name), histogram.value());
            imported.notes.push(histogram.says(&shown(name)));
        }
        for name in &self.order {
            let (Some(map), Some(shape)) = (self.maps.get(name), shapes.get(&**name)) else {
                continue;
            };
            if let Some(value) = map.scalar {
                imported.notes.push(format!(
                    "{} is {} over all, not by call",
                    shown(name),
                    Grouped(value.count())
                ));
            }
            if map.is_running() {
                imported.notes.push(format!(
                    "{} was printed {} times and only grows: the last values are taken, as running totals",
                    shown(name),
                    map.prints
                ));
            } else if map.prints > 1 && map.sum.len() < map.order.len().saturating_mul(2) && map.compared > 0
            {
                imported.notes.push(format!(
                    "{} was printed {} times: these are intervals of one run and are added up",
                    shown(name),
                    map.prints
                ));
            }
            if shape.probe && shape.call.is_none() {
                imported.notes.push(format!(
                    "the keys of {} are probes that are no system calls: {} entries make no row",
                    shown(name),
                    map.order.len()
                ));
            }
        }
        if self.stacks > 0 {
            imported.notes.push(format!(
                "{} keys are call stacks, which are no system calls: they make no row",
                self.stacks
            ));
        }
        let left_out: Vec<String> = self
            .order
            .iter()
            .filter(|name| {
                let unread = matches!(meaning(name), Meaning::Other | Meaning::Unsaid)
                    && !counting.contains(&&***name);
                unread
                    && shapes
                        .get(&***name)
                        .is_some_and(|s| s.call.is_some() || s.process.is_some())
            })
            .filter(|_| !counting.is_empty())
            .map(|name| shown(name))
            .collect();
        if !left_out.is_empty() {
            imported.notes.push(format!(
                "not counts of calls by their names, and left out: {}",
                left_out.join(", ")
            ));
        }
        if counting.is_empty() && !imported.by_process.is_empty() {
            imported.notes.push(
                "counts per command or process, not per system call: they cannot stand in a table of system calls \
                 (a map by args->id or by probe counts these)"
                    .to_owned(),
            );
        }
    }
}
