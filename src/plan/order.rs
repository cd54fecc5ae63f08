//! The order in which rows take their turns.
//!
//! A machine drifts (heat, other work, caches, sockets in TIME_WAIT), so rows are never run one after
//! the other to their end: every round runs all of them once, and where a row stands in a round is
//! balanced over the rounds.

/// The order of rows in each round: each round starts at another row, and every second round runs
/// backwards, so that over the rounds no row always follows the same one or always comes first.
pub fn balanced(rows: usize, rounds: usize) -> Vec<Vec<usize>> {
    (0..rounds)
        .map(|round| {
            let pair = round / 2;
            let pairs = rounds.div_ceil(2).max(1);
            let start = if rows == 0 { 0 } else { pair * rows / pairs % rows };
            let forward = (0..rows).map(|i| (start + i) % rows);
            if round % 2 == 0 {
                forward.collect()
            } else {
                forward.rev().collect()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_runs_every_row_once() {
        for order in balanced(7, 9) {
            let mut seen = order.clone();
            seen.sort_unstable();
            assert_eq!(seen, (0..7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_even_number_of_rounds_balances_the_position_exactly() {
        let rows = 6;
        let mut sum = vec![0; rows];
        for order in balanced(rows, 8) {
            for (position, row) in order.iter().enumerate() {
                sum[*row] += position;
            }
        }
        assert!(sum.iter().all(|s| *s == sum[0]), "{sum:?}");
    }

    #[test]
    fn neighbours_change_places() {
        let rounds = balanced(3, 2);
        assert_eq!(rounds, [vec![0, 1, 2], vec![2, 1, 0]]);
        assert!(balanced(0, 3).iter().all(Vec::is_empty));
    }
}
