//! What rows are called where several have one name.

use std::collections::BTreeSet;

use super::StrategyResult;

/// The name of a row, and behind it what tells it from other rows of that name:
/// `phpredis/connect/tcp clients=100`. Not escaped.
pub fn label(row: &StrategyResult, rows: &[StrategyResult]) -> String {
    row.name.clone() + &difference(row, rows)
}

/// What tells a row from others of its name, each with a space before it; empty where the name does.
pub fn difference(row: &StrategyResult, rows: &[StrategyResult]) -> String {
    let same: Vec<&StrategyResult> = rows.iter().filter(|other| other.name == row.name).collect();
    let axes = &row.axes;
    let mut words = String::new();
    if same.iter().any(|other| other.axes.op != axes.op) {
        words.push_str(&format!(" {}", axes.op));
    }
    type Pick = fn(&StrategyResult) -> u64;
    let numbers: [(&str, &str, Pick); 4] = [
        ("pipeline", "", |row| u64::from(row.axes.pipeline)),
        ("payload", "B", |row| row.axes.payload_bytes),
        ("clients", "", |row| u64::from(row.axes.clients)),
        ("servers", "", |row| u64::from(row.axes.servers)),
    ];
    for (what, unit, pick) in numbers {
        if same.iter().any(|other| pick(other) != pick(row)) {
            words.push_str(&format!(" {what}={}{unit}", pick(row)));
        }
    }
    let names: BTreeSet<&str> = same
        .iter()
        .flat_map(|row| row.experiment.settings.keys())
        .map(String::as_str)
        .collect();
    for name in names {
        let differs = |other: &&StrategyResult| {
            // Rows of different payloads are told apart by those.
            let told = name == "serializer" && setting(other, "payload") != setting(row, "payload");
            !told && setting(other, name) != setting(row, name)
        };
        if same.iter().any(differs) {
            words.push_str(&format!(" {name}={}", setting(row, name)));
        }
    }
    words
}

/// A setting of a row, or what it is where nothing is set.
fn setting<'a>(row: &'a StrategyResult, name: &str) -> &'a str {
    let usual = match name {
        "payload" => "string",
        "network" => "shared",
        _ => "none",
    };
    row.experiment.settings.get(name).map_or(usual, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::row;

    #[test]
    fn rows_are_told_apart_by_what_differs_alone() {
        let mut rows = vec![row("a/b/tcp"), row("a/b/tcp"), row("c/d/tcp")];
        (rows[0].axes.clients, rows[1].axes.clients, rows[2].axes.clients) = (100, 1000, 100);
        rows[1].experiment.settings.insert("network".into(), "own".into());
        let labels: Vec<String> = rows.iter().map(|row| label(row, &rows)).collect();
        assert_eq!(
            labels,
            [
                "a/b/tcp clients=100 network=shared",
                "a/b/tcp clients=1000 network=own",
                "c/d/tcp"
            ]
        );
    }

    #[test]
    fn a_serializer_is_told_where_the_payload_does_not_tell() {
        let set = |row: &mut StrategyResult, name: &str, value: &str| {
            row.experiment.settings.insert(name.to_owned(), value.to_owned());
        };
        let mut rows = vec![row("a/b/tcp"), row("a/b/tcp")];
        set(&mut rows[0], "payload", "array");
        set(&mut rows[0], "serializer", "php");
        assert_eq!(label(&rows[0], &rows), "a/b/tcp payload=array");
        assert_eq!(label(&rows[1], &rows), "a/b/tcp payload=string");
        set(&mut rows[1], "payload", "array");
        set(&mut rows[1], "serializer", "igbinary");
        assert_eq!(label(&rows[0], &rows), "a/b/tcp serializer=php");
    }
}
