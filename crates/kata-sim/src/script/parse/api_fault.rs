//! Faults of the API server, from text to rules.

use simcluster::api::fault::{Fault, Match, Rule, When};

use crate::script::words::{number, span};

/// The rule of the command `api-fault FAULT OPTION...`.
pub(super) fn rule(fault: &str, options: &[&str]) -> Result<Rule, String> {
    let mut rule = Rule::once(Match::default(), Fault::Reset { when: When::Before });
    let mut when = When::Before;
    for option in options {
        let matches = &mut rule.matches;
        match option.split_once('=') {
            Some(("verb", value)) => value.clone_into(&mut matches.verb),
            Some(("resource", value)) => value.clone_into(&mut matches.resource),
            Some(("name", value)) => value.clone_into(&mut matches.name),
            Some(("subresource", value)) => value.clone_into(&mut matches.subresource),
            Some(("nth", value)) => rule.nth = number(value)?,
            Some(("times", value)) => rule.times = number(value)?,
            None if *option == "forever" => rule.times = 0,
            None if *option == "answered" => when = When::After,
            _ => {
                return Err(format!(
                    "unknown option {option:?}: give verb=, resource=, name=, subresource=, nth=N, \
                     times=N, forever or answered"
                ));
            }
        }
    }
    let millis = |text: &str| {
        span(text).and_then(|span| {
            u64::try_from(span.as_millis()).map_err(|_too_long| format!("{text} is too long"))
        })
    };
    rule.fault = match fault.split_once('=') {
        Some(("status", code)) => {
            Fault::Status { code: number(code)?, retry_after: None, message: None, when }
        }
        Some(("delay", text)) => Fault::Delay { millis: millis(text)? },
        Some(("delay-answer", text)) => Fault::DelayAnswer { millis: millis(text)? },
        Some(("delay-event", text)) => Fault::DelayEvent { millis: millis(text)? },
        _ => match fault {
            "hang" => Fault::Hang { when },
            "reset" => Fault::Reset { when },
            // The request took effect, and the client does not learn it.
            "lost" => Fault::Reset { when: When::After },
            "garbage" => Fault::Garbage { when },
            "drop-event" => Fault::DropEvent,
            "duplicate-event" => Fault::DuplicateEvent,
            "close-watch" => Fault::CloseWatch,
            "expire-watch" => Fault::ExpireWatch,
            "silence-watch" => Fault::SilenceWatch,
            _ => {
                return Err(format!(
                    "unknown fault {fault:?}: give none, status=CODE, delay=SPAN, delay-answer=SPAN, hang, \
                     reset, lost, garbage, drop-event, duplicate-event, delay-event=SPAN, \
                     close-watch, expire-watch or silence-watch"
                ));
            }
        },
    };
    Ok(rule)
}
