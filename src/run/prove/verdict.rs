//! From the numbers of the runs to a verdict.

use crate::record::{Proof, ProofArm, ProofRun, ProofVerdict};
use crate::units::Grouped;

/// Whether the first four runs show something that further runs can add to.
pub(super) fn is_promising(proof: &Proof) -> bool {
    matches!(
        judge(&proof.runs, "").0,
        ProofVerdict::Proven | ProofVerdict::Partly
    )
}

/// What A B A B says: proven when the symptom is in both A and below 1 % of it in both B; partly when it is
/// reduced by a fifth at least; refuted when it is not.
pub(super) fn judge(runs: &[ProofRun], changed: &str) -> (ProofVerdict, String) {
    if let Some(run) = runs.iter().find(|run| run.error.is_some()) {
        let why = run.error.clone().unwrap_or_default();
        return (
            ProofVerdict::NotPossible,
            format!("run {} gave no result: {why}", run.arm.name()),
        );
    }
    let of = |arm: ProofArm| -> Vec<u64> {
        let runs = runs.iter().filter(|run| run.arm == arm);
        runs.map(|run| run.symptom).collect()
    };
    let (a, b) = (of(ProofArm::A), of(ProofArm::B));
    if a.len() < 2 || b.len() < 2 {
        return (
            ProofVerdict::NotPossible,
            "the test was ended before its four runs were over".to_owned(),
        );
    }
    let numbers = format!(
        "{} operations showed it with nothing changed, {} with {changed}",
        and(&a),
        and(&b)
    );
    let (least, most) = (a.iter().min().copied(), a.iter().max().copied());
    let worst = b.iter().max().copied().unwrap_or(0);
    let (sum_a, sum_b) = (sum(&a), sum(&b));
    let verdict = if most == Some(0) || (least == Some(0) && worst == 0) {
        ProofVerdict::NotReproduced
    } else if least > Some(0) && u128::from(worst) * 100 < u128::from(least.unwrap_or(0)).max(1) {
        ProofVerdict::Proven
    } else if u128::from(sum_b) * 5 <= u128::from(sum_a) * 4 {
        ProofVerdict::Partly
    } else {
        ProofVerdict::Refuted
    };
    let mut says = match verdict {
        ProofVerdict::NotReproduced => {
            format!("{numbers}: the failure did not come again each time, so there was nothing to cure")
        }
        _ => numbers,
    };
    let lowered = of(ProofArm::Opposite);
    if let Some(first) = lowered.first() {
        says.push_str(&format!("; {} with the limit lowered instead", Grouped(*first)));
    }
    for run in runs.iter().filter(|run| run.arm == ProofArm::Alone) {
        let set: Vec<String> = run
            .set
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        says.push_str(&format!(
            "; {} with {} alone",
            Grouped(run.symptom),
            set.join(" ")
        ));
    }
    (verdict, says)
}

fn sum(numbers: &[u64]) -> u64 {
    crate::units::total(numbers.iter().copied())
}

fn and(numbers: &[u64]) -> String {
    let words: Vec<String> = numbers.iter().map(|n| Grouped(*n).to_string()).collect();
    words.join(" and ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn runs(symptoms: [u64; 4]) -> Vec<ProofRun> {
        let arms = [ProofArm::A, ProofArm::B, ProofArm::A, ProofArm::B];
        arms.into_iter()
            .zip(symptoms)
            .map(|(arm, symptom)| ProofRun {
                arm,
                set: BTreeMap::new(),
                asked: 1200,
                done: 1200 - symptom,
                symptom,
                counters: BTreeMap::new(),
                seconds: 0.5,
                findings: Vec::new(),
                error: None,
            })
            .collect()
    }

    #[test]
    fn the_four_runs_decide() {
        for (symptoms, verdict) in [
            ([412, 0, 390, 0], ProofVerdict::Proven),
            ([412, 3, 390, 0], ProofVerdict::Proven),
            ([412, 4, 390, 0], ProofVerdict::Partly),
            ([1, 0, 1, 0], ProofVerdict::Proven),
            ([412, 100, 390, 90], ProofVerdict::Partly),
            ([412, 400, 390, 410], ProofVerdict::Refuted),
            ([4, 9, 4, 9], ProofVerdict::Refuted),
            ([0, 0, 0, 0], ProofVerdict::NotReproduced),
            ([0, 0, 5, 0], ProofVerdict::NotReproduced),
            ([0, 7, 0, 7], ProofVerdict::NotReproduced),
        ] {
            assert_eq!(judge(&runs(symptoms), "x").0, verdict, "{symptoms:?}");
        }
    }

    #[test]
    fn a_run_without_a_result_proves_nothing() {
        let mut four = runs([412, 0, 390, 0]);
        four[1].error = Some("the server did not start".to_owned());
        let (verdict, says) = judge(&four, "x");
        assert_eq!(verdict, ProofVerdict::NotPossible);
        assert!(says.contains("did not start"), "{says}");
        assert_eq!(
            judge(&runs([412, 0, 390, 0])[..2], "x").0,
            ProofVerdict::NotPossible
        );
    }
}
