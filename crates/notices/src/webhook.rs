//! The body of a notice that comes by HTTP: this project's, or that of
//! aws-node-termination-handler's webhook with its default template.

use std::time::Duration;

use sanderling_protocol::Refusal;
use serde::Deserialize;

use crate::moment;

/// What was posted to a node by HTTP, in either of the formats that are understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// The machine will be taken; the time left, if the body has it.
    Notice {
        /// Milliseconds left; refused later unless positive.
        left_millis: Option<i64>,
        /// Why.
        reason: String,
    },
    /// The machine is likely to be taken soon.
    Recommendation {
        /// Why.
        reason: String,
    },
    /// Something that does not take the machine.
    Nothing {
        /// What it was.
        what: String,
    },
}

/// This project's body. The deadline may be given in seconds, with a fraction, or milliseconds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    deadline_seconds: Option<f64>,
    deadline_millis: Option<i64>,
    recommendation: Option<String>,
    #[serde(default)]
    reason: String,
}

/// The default template of aws-node-termination-handler: one text of `NAME: VALUE` parts.
#[derive(Debug, Deserialize)]
struct HandlerBody {
    text: String,
}

/// Reads a body.
///
/// # Errors
/// [`Refusal::BadRequest`]: it is neither form; answer with it.
pub fn read(body: &[u8]) -> Result<Posted, Refusal> {
    let bad = |why: String| Refusal::BadRequest { why };
    if let Ok(handler) = serde_json::from_slice::<HandlerBody>(body) {
        return read_text(&handler.text).ok_or_else(|| {
            bad("the text has no \"Kind: ...\" as aws-node-termination-handler writes it".into())
        });
    }
    let own: Own = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    let left_millis = match (own.deadline_seconds, own.deadline_millis) {
        // Saturates: what is too far off is refused by the namenode as such.
        (Some(seconds), None) if seconds.is_finite() => Some((seconds * 1000.0).round() as i64),
        (None, Some(millis)) => Some(millis),
        (None, None) if own.recommendation.is_some() => None,
        _ => return Err(bad("give either deadline_seconds or deadline_millis".into())),
    };
    Ok(match (left_millis, own.recommendation) {
        (None, Some(reason)) => Posted::Recommendation { reason },
        (left_millis, _) => Posted::Notice { left_millis, reason: own.reason },
    })
}

fn read_text(text: &str) -> Option<Posted> {
    let kind = part(text, "Kind")?;
    let description = part(text, "Description").unwrap_or_default();
    let reason = format!("{kind}: {description}");
    Some(match kind {
        "SPOT_ITN" | "ASG_LIFECYCLE" | "STATE_CHANGE" | "SCHEDULED_EVENT" | "SQS_TERMINATE" => {
            let start = part(text, "Start Time");
            let moment = start
                .and_then(|start| moment::from_go(start).or_else(|| moment::from_rfc3339(start)));
            let left = moment.map(moment::until).map(millis);
            Posted::Notice { left_millis: left, reason }
        }
        "REBALANCE_RECOMMENDATION" => Posted::Recommendation { reason },
        other => Posted::Nothing { what: other.to_owned() },
    })
}

/// Returns the value of `NAME: VALUE` in parts that are separated by ` - `.
fn part<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("{name}: "))? + name.len() + 2;
    let rest = &text[start..];
    // A description may have the separator in it: a value ends where another name begins.
    let names = ["EventID", "Kind", "Instance", "Node", "Description", "State", "Start Time"];
    let ends = names.iter().filter_map(|next| rest.find(&format!(" - {next}: ")));
    Some(rest[..ends.min().unwrap_or(rest.len())].trim())
}

fn millis(left: Duration) -> i64 {
    i64::try_from(left.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler_body(kind: &str, start: &str) -> String {
        format!(
            "{{\"text\":\"[NTH][Instance Interruption] EventID: spot-itn-6 - Kind: {kind} - \
             Instance: i-0123 - Node: ip-10-0-0-1.ec2.internal - Description: Spot ITN received. \
             Instance will be interrupted at {start} \\n - Start Time: {start}\"}}"
        )
    }

    #[test]
    fn the_termination_handlers_default_body_is_a_notice() {
        let body = handler_body("SPOT_ITN", "2099-10-26 15:55:55 +0000 UTC");
        let Posted::Notice { left_millis: Some(left), reason } = read(body.as_bytes()).unwrap()
        else {
            panic!("no notice")
        };
        assert!(left > 1_000_000 && reason.starts_with("SPOT_ITN: Spot ITN received"), "{reason}");
        let past = handler_body("SPOT_ITN", "2020-10-26 15:55:55 +0000 UTC");
        let posted = read(past.as_bytes()).unwrap();
        assert!(matches!(posted, Posted::Notice { left_millis: Some(500), .. }), "{posted:?}");
    }

    #[test]
    fn its_rebalance_recommendation_is_none() {
        let body = handler_body("REBALANCE_RECOMMENDATION", "2020-10-26 15:55:55 +0000 UTC");
        let posted = read(body.as_bytes()).unwrap();
        assert!(matches!(posted, Posted::Recommendation { .. }), "{posted:?}");
        let posted = read(handler_body("HEALTH_CHECK", "soon").as_bytes()).unwrap();
        assert_eq!(posted, Posted::Nothing { what: "HEALTH_CHECK".to_owned() });
    }

    #[test]
    fn own_bodies_are_read_and_others_refused() {
        let posted = read(br#"{"deadline_seconds": 1.5, "reason": "r"}"#).unwrap();
        assert_eq!(posted, Posted::Notice { left_millis: Some(1500), reason: "r".to_owned() });
        let posted = read(br#"{"recommendation": "leave"}"#).unwrap();
        assert_eq!(posted, Posted::Recommendation { reason: "leave".to_owned() });
        for body in ["", "{}", r#"{"text":"hello"}"#, r#"{"deadline_seconds":1,"x":2}"#, "[]"] {
            assert!(matches!(read(body.as_bytes()), Err(Refusal::BadRequest { .. })), "{body}");
        }
    }
}
