//! `upgrade`: gives the nodes another payload, or with `--rollback` the one before. The operator does the rest.

use kata_api::kata_node::Phase;
use kata_api::platform::Platform;
use kata_api::{KataConfig, names};
use serde_json::{Value, json};

use super::steer::{change, try_change};
use super::{ask_consent, expect_output, install, status, wait};
use crate::Context;
use crate::arguments::UpgradeArguments;
use crate::cluster::{Kata, operator_quietly, platform};
use crate::disruption::field;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refusal::Refusal;
use crate::resource::KATA_CONFIGS;
use crate::settings::Output;

/// What a KataConfig without a payload gets.
const DEFAULT: &str = "the operator's default";

/// `spec.payload.image` before and after the command; `None` is the operator's default.
struct Images {
    before: Option<String>,
    after: Option<String>,
    /// What `--rollback` goes back to after the command, empty for the operator's default; `None` if this is a rollback, or
    /// nothing worked before.
    way_back: Option<String>,
}

impl Images {
    fn of(kata: &Kata, config: &KataConfig, arguments: &UpgradeArguments) -> Result<Self, Refusal> {
        let before = config.spec.payload.as_ref().map(|payload| payload.image.clone());
        let annotations = config.metadata.annotations.as_ref();
        let recorded = annotations.and_then(|all| all.get(names::PREVIOUS_PAYLOAD_ANNOTATION));
        if let Some(image) = &arguments.payload_image {
            // A payload with which no node became Ready is no way back.
            let has_worked = status::is_ready(config) || serves_with(kata, before.as_deref());
            let way_back = if has_worked {
                Some(before.clone().unwrap_or_default())
            } else {
                recorded.cloned()
            };
            return Ok(Self { before, after: Some(image.clone()), way_back });
        }
        let Some(image) = recorded else {
            return Err(Refusal::new(
                "no earlier payload is recorded: `kubectl kata upgrade` has not changed it",
                "kubectl kata upgrade --payload-image REF, with the image to go back to",
            ));
        };
        // The record stays, so that the same command again changes nothing more.
        let after = (!image.is_empty()).then(|| image.clone());
        Ok(Self { before, after, way_back: None })
    }

    fn patch(&self) -> Value {
        let payload = self.after.as_ref().map(|image| json!({"image": image}));
        let mut patch = json!({"spec": {"payload": payload}});
        if let Some(way_back) = &self.way_back {
            patch["metadata"]["annotations"] =
                json!({names::PREVIOUS_PAYLOAD_ANNOTATION: way_back});
        }
        patch
    }

    /// The command that undoes this one; `None` if none does, since the operator's default has no name.
    fn back(&self, is_rollback: bool) -> Option<String> {
        match &self.way_back {
            None if !is_rollback => None,
            Some(image) => {
                let image = text(Some(image).filter(|image| !image.is_empty()));
                Some(format!("kubectl kata upgrade --rollback, to {image}"))
            }
            None => {
                let before = self.before.as_ref()?;
                Some(format!("kubectl kata upgrade --payload-image {before}"))
            }
        }
    }
}

fn text(image: Option<&String>) -> &str {
    image.map_or(DEFAULT, String::as_str)
}

pub(crate) async fn run(
    arguments: &UpgradeArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table], "upgrade")?;
    let kata = Kata::read(&context.api).await?;
    let config = kata.active_or_not_found("upgrade")?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let deployment = operator_quietly(&context.api).await?.known().flatten();
    let images = match refusal(config, platform(deployment.as_ref(), &context.api).await?) {
        Some(refusal) => Err(refusal),
        None => Images::of(&kata, config, arguments),
    };
    let images = match images {
        Ok(images) => images,
        Err(refusal) => return refusal.print(context),
    };
    let (before, after) = (text(images.before.as_ref()), text(images.after.as_ref()));
    if before == after {
        let line = context.marked(&format!("KataConfig {name} has this payload already: {after}"));
        context.printer.line(&line)?;
        if arguments.dry_run {
            return Ok(Exit::Fine);
        }
        return wait::until_ready_if_asked(&arguments.change, context).await;
    }
    let patch = images.patch();
    let tried = try_change(KATA_CONFIGS, name, &patch, context).await?;
    let tried: KataConfig = serde_json::from_value(tried)
        .map_err(|source| Failure::Answer { what: format!("change KataConfig {name}"), source })?;
    let plan = install::Change::of_update(&tried, context).await?;
    let style = context.printer.style();
    let verb = if arguments.rollback { "takes the nodes back" } else { "upgrades the nodes" };
    let head = context.marked(&format!("This command {verb} to the payload {after}."));
    context.printer.say(&head)?;
    let mut lines = field("Cluster", &context.place, &style);
    lines.extend(field("KataConfig", name, &style));
    lines.extend(field("From", before, &style));
    lines.extend(plan.lines(&style));
    if config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused) {
        let paused = "no node changes until `kubectl kata resume`";
        lines.extend(field("Paused", paused, &style));
    }
    if let Some(back) = images.back(arguments.rollback) {
        lines.extend(field("Way back", &back, &style));
    }
    for line in &lines {
        context.printer.say(line)?;
    }
    let done = if arguments.rollback { "rolled back" } else { "upgraded" };
    if arguments.dry_run {
        let line =
            context.marked(&format!("{}/{name} {done} (server dry run)", KATA_CONFIGS.qualified()));
        context.printer.line(&line)?;
        return Ok(Exit::Fine);
    }
    let what = plan.summary().unwrap_or_else(|| format!("changes KataConfig {name}"));
    if let Some(exit) =
        ask_consent(arguments.change.yes, &format!("upgrade {what}"), context).await?
    {
        return Ok(exit);
    }
    change(KATA_CONFIGS, name, done, &patch, false, context).await?;
    wait::until_ready_if_asked(&arguments.change, context).await
}

/// Whether a node is Ready with this image, or with any if it is the operator's default, which has no name here.
fn serves_with(kata: &Kata, image: Option<&str>) -> bool {
    kata.nodes.items().iter().filter_map(|node| node.status.as_ref()).any(|status| {
        let host = status.host.as_ref();
        let payload = host.and_then(|host| host.payload_image.as_ref());
        status.phase == Phase::Ready
            && payload.is_some_and(|it| image.is_none_or(|image| it.image == image))
    })
}

/// Why no payload can be given to this KataConfig.
fn refusal(config: &KataConfig, platform: Platform) -> Option<Refusal> {
    if config.metadata.deletion_timestamp.is_some() {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        return Some(Refusal::new(
            format!("KataConfig {name} is being deleted"),
            "kubectl kata wait --for deleted, then kubectl kata install",
        ));
    }
    (platform == Platform::Openshift).then(|| {
        Refusal::new(
            "on OpenShift Kata comes with the cluster's release, and no payload is installed",
            "upgrade the cluster",
        )
    })
}
