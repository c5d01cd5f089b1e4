//! Tests of the program `kata-sim`, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "the program is started, and outputs renewed on demand"
)]

mod scenarios;
