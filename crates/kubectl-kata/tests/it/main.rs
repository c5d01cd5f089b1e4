//! Tests of `kubectl kata`: the commands on simulated clusters on virtual time, and the program itself.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod accept;
mod causes;
mod certificates;
mod change;
mod codes;
mod conformance;
mod connection;
mod disruption;
mod doctor;
mod gather;
mod giving_up;
mod golden;
mod history;
mod input;
mod installation;
mod lab;
mod lease;
mod lists;
mod reports;
mod schemas;
mod silence;
mod simulated;
mod status;
mod take_over;
mod upgrade;
mod verify;
mod view_only;
mod walkthrough;
mod why;
