//! `upgrade`: gives the nodes another payload, or with `--rollback` the one before. The operator does the rest.

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
    /// Whether to record the image before as the way back.
    is_way_back: bool,
}

impl Images {
    fn of(config: &KataConfig, arguments: &UpgradeArguments) -> Result<Self, Refusal> {
        let before = config.spec.payload.as_ref().map(|payload| payload.image.clone());
        let annotations = config.metadata.annotations.as_ref();
        let recorded = annotations.and_then(|all| all.get(names::PREVIOUS_PAYLOAD_ANNOTATION));
        if let Some(image) = &arguments.payload_image {
            // A payload with which the KataConfig did not become Ready is no way back.
            let is_way_back = status::is_ready(config) || recorded.is_none();
            return Ok(Self { before, after: Some(image.clone()), is_way_back });
        }
        let Some(image) = recorded else {
            return Err(Refusal::new(
                "no earlier payload is recorded: `kubectl kata upgrade` has not changed it",
                "kubectl kata upgrade --payload-image REF, with the image to go back to",
            ));
        };
        // The record stays, so that the same command again changes nothing more.
        let after = (!image.is_empty()).then(|| image.clone());
        Ok(Self { before, after, is_way_back: false })
    }

    fn patch(&self) -> Value {
        let payload = self.after.as_ref().map(|image| json!({"image": image}));
        let mut patch = json!({"spec": {"payload": payload}});
        if self.is_way_back {
            let before = self.before.as_deref().unwrap_or_default();
            patch["metadata"]["annotations"] = json!({names::PREVIOUS_PAYLOAD_ANNOTATION: before});
        }
        patch
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
        None => Images::of(config, arguments),
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
    let back = if arguments.rollback {
        images
            .before
            .as_ref()
            .map(|before| format!("kubectl kata upgrade --payload-image {before}"))
    } else {
        Some("kubectl kata upgrade --rollback".to_owned())
    };
    if let Some(back) = &back {
        lines.extend(field("Way back", back, &style));
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
