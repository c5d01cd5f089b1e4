//! `upgrade`: gives the nodes another payload, or with `--rollback` the one before. The operator does the rest.

use kata_api::platform::Platform;
use kata_api::{Code, KataConfig, names};
use serde_json::{Value, json};

use super::steer::{change, try_change};
use super::{ask_consent, expect_output, install, wait};
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

/// `spec.payload.image` now and then; `None` is the operator's default.
struct Images {
    before: Option<String>,
    after: Option<String>,
}

impl Images {
    fn of(config: &KataConfig, arguments: &UpgradeArguments) -> Result<Self, Refusal> {
        let before = config.spec.payload.as_ref().map(|payload| payload.image.clone());
        if let Some(image) = &arguments.payload_image {
            return Ok(Self { before, after: Some(image.clone()) });
        }
        let annotations = config.metadata.annotations.as_ref();
        let recorded = annotations.and_then(|all| all.get(names::PREVIOUS_PAYLOAD_ANNOTATION));
        match recorded {
            Some(image) => {
                let after = (!image.is_empty()).then(|| image.clone());
                Ok(Self { before, after })
            }
            None => Err(Refusal::new(
                "no earlier payload is recorded: `kubectl kata upgrade` has not changed it",
                "kubectl kata upgrade --payload-image REF, with the image to go back to",
            )),
        }
    }

    /// The way back changes no record: the same command again changes nothing more.
    fn patch(&self, is_rollback: bool) -> Value {
        let payload = self.after.as_ref().map(|image| json!({"image": image}));
        let mut patch = json!({"spec": {"payload": payload}});
        if !is_rollback {
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
    kata.configs.listed("find the KataConfig", &KATA_CONFIGS.qualified())?;
    let Some(config) = kata.active() else {
        return Err(Failure::NotFound(
            "there is no KataConfig to upgrade; `kubectl kata install` creates one".to_owned(),
        ));
    };
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
        if arguments.wait && !arguments.dry_run {
            return wait::until(&wait::Wanted::Ready, arguments.timeout, context).await;
        }
        return Ok(Exit::Fine);
    }
    let patch = images.patch(arguments.rollback);
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
        let paused = "the roll-out is: no node changes until `kubectl kata resume`";
        lines.extend(field("Paused", paused, &style));
    }
    lines.extend(field("Way back", "kubectl kata upgrade --rollback", &style));
    for line in &lines {
        context.printer.say(line)?;
    }
    if arguments.dry_run {
        let line = context
            .marked(&format!("{}/{name} upgraded (server dry run)", KATA_CONFIGS.qualified()));
        context.printer.line(&line)?;
        return Ok(Exit::Fine);
    }
    let what = plan.summary().unwrap_or_else(|| format!("changes KataConfig {name}"));
    if let Some(exit) = ask_consent(arguments.yes, &format!("upgrade {what}"), context).await? {
        return Ok(exit);
    }
    let done = if arguments.rollback { "rolled back" } else { "upgraded" };
    change(KATA_CONFIGS, name, done, &patch, false, context).await?;
    if arguments.wait {
        return wait::until(&wait::Wanted::Ready, arguments.timeout, context).await;
    }
    context.printer.say("Next: kubectl kata wait")?;
    Ok(Exit::Fine)
}

/// Why no payload can be given to this KataConfig.
fn refusal(config: &KataConfig, platform: Platform) -> Option<Refusal> {
    if config.metadata.deletion_timestamp.is_some() {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        return Some(Refusal::of(
            Code::NotActive,
            format!("KataConfig {name} is being deleted"),
            "kubectl kata wait --for deleted",
        ));
    }
    (platform == Platform::Openshift).then(|| {
        Refusal::new(
            "on OpenShift Kata comes with the cluster's release, and no payload is installed",
            "upgrade the cluster",
        )
    })
}
