//! Throughput as a picture (SVG): by servers where their number varies, else by clients, else by pipeline
//! depth, a line for each strategy; without any of these a bar for each row. Plain SVG without scripts,
//! fonts or colours from elsewhere, so that it shows the same in a page, a report and a mail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::shown;
use crate::record::label::label as label_of_row;
use crate::record::{Interval, Record, Status, StrategyResult};
use crate::units::Grouped;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 50.0;
const PLOT_WIDTH: f64 = 500.0;
const PLOT_HEIGHT: f64 = 340.0;

/// Colours that people with red-green blindness tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// Between the points of two lines at one place.
const APART: f64 = 4.0;

/// What the horizontal axis is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Servers,
    Clients,
    Pipeline,
}

impl Axis {
    const ALL: [Axis; 3] = [Axis::Servers, Axis::Clients, Axis::Pipeline];

    fn of(self, row: &StrategyResult) -> u32 {
        match self {
            Axis::Servers => row.axes.servers,
            Axis::Clients => row.axes.clients,
            Axis::Pipeline => row.axes.pipeline,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Axis::Servers => "servers",
            Axis::Clients => "clients",
            Axis::Pipeline => "operations per pipeline",
        }
    }
}

/// One line of the plot: points by where they stand on the axis, each with how its row ended.
type Line = BTreeMap<u32, (Interval, Status)>;

/// The picture of a record; `None` when no row has a speed. Rows that failed have none; what the server did not confirm
/// is marked.
pub fn svg(record: &Record) -> Option<String> {
    let rows: Vec<&StrategyResult> = record
        .strategies
        .iter()
        .filter(|row| {
            row.speed()
                .known()
                .is_some_and(|timed| timed.ops_per_s.median.is_finite())
        })
        .collect();
    let most = rows
        .iter()
        .filter_map(|row| Some(row.timed.known()?.ops_per_s.high))
        .filter(|rate| rate.is_finite())
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let top = nice(most);
    // Strategies with a value each are no series: a line needs two points of one strategy.
    let varies = |axis: &Axis| {
        let mut first: BTreeMap<&str, u32> = BTreeMap::new();
        rows.iter()
            .any(|row| *first.entry(&row.name).or_insert(axis.of(row)) != axis.of(row))
    };
    Some(match Axis::ALL.into_iter().find(varies) {
        Some(axis) => lines(&rows, &record.strategies, axis, top),
        None => bars(&rows, &record.strategies),
    })
}

/// A round number at or above this one.
fn nice(most: f64) -> f64 {
    let unit = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| unit * step >= most).unwrap_or(10.0);
    unit * step
}

/// Text for XML.
fn xml(text: &str) -> String {
    shown(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Room that a text of this size takes at most, in the units of the picture.
fn room(text: &str) -> f64 {
    7.3 * text.chars().count() as f64
}

fn frame((width, height): (f64, f64), what: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n<title>{what}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT:.0}\" y=\"28\" font-size=\"16\">{what}</text>\n"
    )
}

fn lines(rows: &[&StrategyResult], every: &[StrategyResult], axis: Axis, top: f64) -> String {
    let mut remarks: Vec<String> = not_drawn(every).into_iter().collect();
    let places: BTreeSet<u32> = rows.iter().map(|row| axis.of(row)).collect();
    let mut all: Vec<(String, Line)> = Vec::new();
    for row in rows {
        let Some(timed) = row.timed.known() else { continue };
        let name = label(row, rows, axis);
        let at = match all.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                all.push((name, Line::new()));
                all.len() - 1
            }
        };
        all[at].1.insert(axis.of(row), (timed.ops_per_s, row.status));
    }
    let x = |place: u32| {
        let index = places.iter().position(|known| *known == place).unwrap_or(0) as f64;
        let gaps = places.len().saturating_sub(1).max(1) as f64;
        LEFT + 20.0 + index / gaps * (PLOT_WIDTH - 40.0)
    };
    let y = |rate: f64| TOP + PLOT_HEIGHT * (1.0 - rate / top);
    let what = format!("Operations per second, untraced, by {}", axis.name());
    let height = HEIGHT.max(TOP + 22.0 * all.len() as f64 + 40.0);
    let legend = all.iter().map(|(name, _)| room(name)).fold(0.0, f64::max);
    let width = WIDTH.max(LEFT + PLOT_WIDTH + 50.0 + legend + 10.0);
    let mut out = frame((width, height), &what);
    grid(&mut out, top, y);
    for place in &places {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{place}</text>",
            x(*place),
            TOP + PLOT_HEIGHT + 20.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        LEFT + PLOT_WIDTH / 2.0,
        TOP + PLOT_HEIGHT + 42.0,
        axis.name()
    );
    let mut hollow = false;
    for (number, (name, line)) in all.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = match number / COLOURS.len() {
            0 => "",
            1 => " stroke-dasharray=\"6 4\"",
            _ => " stroke-dasharray=\"2 3\"",
        };
        // A little apart, so that their intervals do not cover each other.
        let lines = all.len() as f64;
        let aside = (number as f64 - (lines - 1.0) / 2.0) * APART.min(40.0 / lines);
        let x = |place: u32| x(place) + aside;
        let points: Vec<String> = line
            .iter()
            .map(|(place, (rate, _))| format!("{:.1},{:.1}", x(*place), y(rate.median)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            points.join(" ")
        );
        for (place, (rate, status)) in line {
            let (fill, word) = match status {
                Status::Ok => (colour, String::new()),
                Status::Failed | Status::Skipped | Status::Unverified => {
                    hollow = true;
                    ("white", format!(" ({})", status.name()))
                }
            };
            let _ = writeln!(
                out,
                "<path d=\"M{0:.1} {1:.1}V{2:.1}\" stroke=\"{colour}\"/><circle cx=\"{0:.1}\" cy=\"{3:.1}\" r=\"4\" \
                 fill=\"{fill}\" stroke=\"{colour}\"><title>{4}: {5} op/s{word}</title></circle>",
                x(*place),
                y(rate.low),
                y(rate.high),
                y(rate.median),
                xml(name),
                Grouped(rate.median.round().max(0.0) as u64)
            );
        }
        let at = TOP + 10.0 + 22.0 * number as f64;
        let from = LEFT + PLOT_WIDTH + 20.0;
        let _ = writeln!(
            out,
            "<path d=\"M{from:.1} {at:.1}h24\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            from + 30.0,
            at + 4.0,
            xml(name)
        );
    }
    if hollow {
        remarks.push("hollow: unverified, the server does not confirm what the client claims".to_owned());
    }
    note(&mut out, &remarks);
    out.push_str("</svg>\n");
    out
}

/// What is to be said of the picture, below its title.
fn note(out: &mut String, remarks: &[String]) {
    if !remarks.is_empty() {
        let _ = writeln!(
            out,
            "<text x=\"{LEFT:.1}\" y=\"{:.1}\" font-size=\"12\" fill=\"#555555\">{}</text>",
            TOP - 6.0,
            remarks.join("; ")
        );
    }
}

/// Why rows that failed are not drawn.
fn not_drawn(all: &[StrategyResult]) -> Option<String> {
    let failed = all.iter().filter(|row| row.status == Status::Failed).count();
    let words = match failed {
        0 => return None,
        1 => "1 row failed and is not drawn: what it reached".to_owned(),
        n => format!("{n} rows failed and are not drawn: what they reached"),
    };
    Some(format!("{words} is no result"))
}

fn grid(out: &mut String, top: f64, y: impl Fn(f64) -> f64) {
    for step in 0..=5 {
        let rate = top * f64::from(step) / 5.0;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT:.1} {0:.1}h{PLOT_WIDTH:.1}\" stroke=\"#cccccc\"/><text x=\"{1:.1}\" y=\"{2:.1}\" \
             text-anchor=\"end\">{3}</text>",
            y(rate),
            LEFT - 8.0,
            y(rate) + 4.0,
            Grouped(rate.round() as u64)
        );
    }
}

fn bars(rows: &[&StrategyResult], all: &[StrategyResult]) -> String {
    const STEP: f64 = 26.0;
    const BARS: f64 = 420.0;
    let rates = rows
        .iter()
        .filter_map(|row| Some(row.timed.known()?.ops_per_s.median));
    let top = nice(rates.fold(f64::MIN_POSITIVE, f64::max));
    let labels: Vec<String> = rows.iter().map(|row| label_of_row(row, all)).collect();
    let names = labels.iter().map(|name| room(name)).fold(250.0, f64::max) + 16.0;
    let height = TOP + STEP * rows.len() as f64 + 30.0;
    let mut out = frame((names + BARS + 110.0, height), "Operations per second, untraced");
    note(&mut out, &not_drawn(all).into_iter().collect::<Vec<_>>());
    for (number, (row, name)) in rows.iter().zip(&labels).enumerate() {
        let Some(timed) = row.timed.known() else { continue };
        let rate = timed.ops_per_s.median;
        let y = TOP + STEP * number as f64;
        let length = (rate / top * BARS).max(1.0);
        // What the server did not confirm is no throughput: another colour, and the word.
        let (fill, word) = match row.status {
            Status::Ok => (COLOURS[0], String::new()),
            Status::Failed | Status::Skipped | Status::Unverified => {
                ("#dddddd", format!(" ({})", row.status.name()))
            }
        };
        let _ = writeln!(
            out,
            "<text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"end\">{2}</text><rect x=\"{names:.1}\" y=\"{y:.1}\" \
             width=\"{length:.1}\" height=\"18\" fill=\"{fill}\"/><text x=\"{3:.1}\" y=\"{1:.1}\">{4}{word}</text>",
            names - 8.0,
            y + 14.0,
            xml(name),
            names + length + 6.0,
            Grouped(rate.round().max(0.0) as u64)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The name of a line: the strategy, and what tells it from other lines of the same strategy.
fn label(row: &StrategyResult, rows: &[&StrategyResult], axis: Axis) -> String {
    let mut name = row.name.clone();
    let same: Vec<&&StrategyResult> = rows.iter().filter(|other| other.name == row.name).collect();
    for other in Axis::ALL {
        if other != axis && same.iter().any(|one| other.of(one) != other.of(row)) {
            let word = match other {
                Axis::Servers => "servers",
                Axis::Clients => "clients",
                Axis::Pipeline => "pipeline",
            };
            let _ = write!(name, ", {} {word}", other.of(row));
        }
    }
    if same.iter().any(|one| one.axes.op != row.axes.op) {
        let _ = write!(name, ", {}", row.axes.op);
    }
    if same
        .iter()
        .any(|one| one.axes.payload_bytes != row.axes.payload_bytes)
    {
        let _ = write!(name, ", {} B", row.axes.payload_bytes);
    }
    for (setting, value) in &row.experiment.settings {
        if same
            .iter()
            .any(|one| one.experiment.settings.get(setting) != Some(value))
        {
            let _ = write!(name, ", {value}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{empty, round, row, set_rounds};

    fn record(rows: &[(&str, u32, u32, f64)]) -> Record {
        let mut record = empty();
        for (name, clients, servers, rate) in rows {
            let mut one = row(name);
            (one.axes.clients, one.axes.servers) = (*clients, *servers);
            set_rounds(&mut one, vec![round(1000, 1000, 1000)], *rate);
            record.strategies.push(one);
        }
        record
    }

    #[test]
    fn a_line_for_each_strategy_and_clients_by_servers() {
        let record = record(&[
            ("predis/shards/tcp", 20, 2, 50_000.0),
            ("predis/shards/tcp", 20, 3, 70_000.0),
            ("predis/shards/tcp", 40, 2, 55_000.0),
            ("predis/shards/tcp", 40, 3, 72_000.0),
        ]);
        let picture = svg(&record).unwrap();
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(picture.contains("predis/shards/tcp, 20 clients"), "{picture}");
        assert!(
            picture.contains("by servers") && picture.contains(">80 000<"),
            "{picture}"
        );
    }

    #[test]
    fn rows_that_differ_in_nothing_else_are_bars_and_names_are_escaped() {
        let record = record(&[("a<b&c/x/tcp", 1, 1, 10.0), ("raw/persistent/tcp", 1, 1, 20.0)]);
        let picture = svg(&record).unwrap();
        assert_eq!(picture.matches("fill=\"#0072b2\"").count(), 2);
        assert!(picture.contains("a&lt;b&amp;c/x/tcp"), "{picture}");
    }

    #[test]
    fn strategies_with_a_value_each_are_no_series_and_what_is_not_confirmed_is_told() {
        let mut record = record(&[("a/x/tcp", 1, 1, 10.0), ("b/x/tcp", 50, 1, 20.0)]);
        record.strategies[1].status = Status::Unverified;
        let picture = svg(&record).unwrap();
        assert!(!picture.contains("<polyline"), "{picture}");
        assert!(picture.contains("20 (unverified)"), "{picture}");
    }

    #[test]
    fn a_failed_row_has_no_bar_and_a_point_that_is_not_confirmed_is_hollow() {
        let mut bars = record(&[("a/x/tcp", 1, 1, 10.0), ("b/x/tcp", 1, 1, 90.0)]);
        bars.strategies[1].status = Status::Failed;
        let picture = svg(&bars).unwrap();
        assert!(
            picture.contains("a/x/tcp") && !picture.contains("b/x/tcp"),
            "{picture}"
        );
        assert!(
            !picture.contains(">90<") && picture.contains("1 row failed and is not drawn"),
            "{picture}"
        );
        bars.strategies[0].status = Status::Failed;
        assert_eq!(svg(&bars), None);

        let mut lines = record(&[
            ("a/x/tcp", 1, 1, 10.0),
            ("a/x/tcp", 2, 1, 20.0),
            ("a/x/tcp", 4, 1, 30.0),
        ]);
        lines.strategies[1].status = Status::Unverified;
        lines.strategies[2].status = Status::Failed;
        let picture = svg(&lines).unwrap();
        assert_eq!(picture.matches("<circle").count(), 2, "{picture}");
        assert!(
            picture.contains("20 op/s (unverified)") && picture.contains("hollow: unverified"),
            "{picture}"
        );
        assert!(picture.contains("1 row failed and is not drawn"), "{picture}");
        lines.strategies[1].status = Status::Ok;
        assert!(!svg(&lines).unwrap().contains("hollow"));
    }

    #[test]
    fn nothing_timed_is_no_picture() {
        assert_eq!(svg(&empty()), None);
    }

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (most, top) in [(71_000.0, 80_000.0), (100.0, 100.0), (0.12, 0.15), (1.0, 1.0)] {
            assert!((nice(most) - top).abs() < 1e-9, "{most}: {}", nice(most));
        }
    }
}
