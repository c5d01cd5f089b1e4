//! How many tests ran: read from what `cargo test` printed, once without and once with `--ignored`.

use std::collections::BTreeMap;
use std::fmt;

/// The tests of a run of CI.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tests {
    passed: u64,
    failed: u64,
    /// Tests that ran in neither run, by reason.
    pub(super) skipped: BTreeMap<String, u64>,
}

impl Tests {
    /// Counts the tests of a run without `--ignored`, and of one with it.
    pub(super) fn of(first: &str, second: &str) -> Self {
        let (mut tests, mut ran) = (Self::default(), BTreeMap::new());
        for (name, result) in results(second) {
            tests.add(result);
            *ran.entry(name).or_insert(0) += 1;
        }
        for (name, result) in results(first) {
            let Some(reason) = result.strip_prefix("ignored") else {
                tests.add(result);
                continue;
            };
            match ran.get_mut(name) {
                Some(left @ 1..) => *left -= 1,
                _ => {
                    let reason = reason.trim_start_matches([',', ' ']);
                    *tests.skipped.entry(reason.to_owned()).or_insert(0) += 1;
                }
            }
        }
        tests
    }

    fn add(&mut self, result: &str) {
        if result == "ok" { self.passed += 1 } else { self.failed += 1 }
    }
}

/// Names and results of the tests in an output of `cargo test`. A line without a result is not one: output of a
/// test may follow its name.
fn results(output: &str) -> impl Iterator<Item = (&str, &str)> {
    output.lines().filter_map(|line| {
        let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let known = result == "ok" || result == "FAILED" || result.starts_with("ignored");
        known.then_some((name, result))
    })
}

/// The line that CI systems read.
impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped: u64 = self.skipped.values().sum();
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
running 4 tests
test a::one ... ok
test a::two ... FAILED
test b::helm ... ignored, needs helm
test b::real ... ignored, needs a foreign cluster
test b::bare ... ignored
test crates/x.rs - y (line 3) ... ok
test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn what_the_second_run_ran_is_not_skipped() {
        let tests = Tests::of(FIRST, "test b::helm ... ok\ntest result: ok. 1 passed;\n");
        let skipped = [("", 1), ("needs a foreign cluster", 1)];
        let skipped = skipped.map(|(reason, number)| (reason.to_owned(), number));
        assert_eq!(tests, Tests { passed: 3, failed: 1, skipped: BTreeMap::from(skipped) });
        assert_eq!(tests.to_string(), "3 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn without_a_second_run_every_ignored_test_is_skipped() {
        let tests = Tests::of(FIRST, "error: no such command\n");
        assert_eq!(tests.skipped.values().sum::<u64>(), 3);
    }
}
