//! The command that README names first.

use std::process::Command;

/// Two screens of a terminal with fifty lines.
const TWO_SCREENS: usize = 100;

fn walkthrough() -> (bool, String) {
    walkthrough_on("openshift")
}

fn walkthrough_on(platform: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kata-sim"));
    let output = command.args(["walkthrough", "--platform", platform]).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_fact_of_the_walkthrough_holds_on_two_screens_that_say_they_are_simulated() {
    let (success, text) = walkthrough();
    assert!(success, "{text}");
    let facts = text.lines().filter(|line| line.starts_with("   √ ")).count();
    assert!(facts >= 25, "{facts} facts:\n{text}");
    assert!(
        text.ends_with(&format!("walkthrough: all {facts} facts hold (simulated)\n")),
        "{text}"
    );
    assert!(text.lines().count() <= TWO_SCREENS, "{} lines", text.lines().count());
    assert!(text.lines().next().unwrap().contains("SIMULATED"), "{text}");
}

#[test]
fn two_walkthroughs_are_the_same_to_the_letter() {
    assert_eq!(walkthrough().1, walkthrough().1);
}

#[test]
fn every_fact_of_the_walkthrough_without_the_machine_config_operator_holds() {
    let (success, text) = walkthrough_on("kubernetes");
    assert!(success, "{text}");
    let facts = text.lines().filter(|line| line.starts_with("   √ ")).count();
    assert!(facts >= 25, "{facts} facts:\n{text}");
    assert!(text.lines().count() <= TWO_SCREENS, "{} lines", text.lines().count());
    assert!(text.lines().next().unwrap().contains("SIMULATED"), "{text}");
}
