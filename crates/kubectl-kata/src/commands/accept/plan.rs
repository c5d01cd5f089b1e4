//! What is looked at before a run asks: whether it may begin, what it would make, and whether the API server takes that. It
//! changes nothing.

use std::collections::BTreeSet;

use kata_api::names;
use serde_json::Value;

use super::aside;
use super::belongings::{NAME, NODE};
use crate::Context;
use crate::api::{Read, Trouble};
use crate::arguments::{AcceptArguments, ChangeArguments, DryRun, InstallArguments};
use crate::cluster::{Kata, OperatorState, operator_quietly, platform};
use crate::commands::uninstall::operator::Removal;
use crate::commands::{install, status};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::refusal::Refusal;
use crate::resource::{
    DEPLOYMENTS, JOBS, KATA_CONFIGS, NAMESPACES, NODES, PODS, Resource, kind_of, path,
};

/// How many objects and permissions a refusal names.
const SHOWN: usize = 4;

/// A run that may begin.
pub(super) struct Plan {
    pub(super) install: InstallArguments,
    /// Whether the operator is installed and removed as well.
    pub(super) with_operator: bool,
}

impl Plan {
    /// Says what the run will do; `Err` is how the command ends if it may not begin.
    ///
    /// # Errors
    /// If the cluster cannot be looked at.
    pub(super) async fn of(
        arguments: &AcceptArguments,
        node: &Value,
        context: &mut Context<'_, '_>,
    ) -> Result<Result<Self, Exit>, Failure> {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let objects = operator_objects(context).await?;
        let with_operator = !objects.is_empty();
        if let Some(refusal) = not_permitted(&objects, context).await? {
            return refusal.print(context).map(Err);
        }
        if with_operator && let Some(refusal) = there_already(&objects, context).await? {
            return refusal.print(context).map(Err);
        }
        let operator = if with_operator { "the operator and " } else { "" };
        let text = format!(
            "This command installs {operator}Kata on node {name}, runs pods there, and removes all of it again."
        );
        context.printer.say(&context.marked(&text))?;
        let install = installation(arguments, node);
        let exit = try_out(&install, name, context).await?;
        Ok(if exit == Exit::Fine { Ok(Self { install, with_operator }) } else { Err(exit) })
    }
}

/// The operator's objects; none if the cluster has an operator, or one runs outside of it.
async fn operator_objects(context: &Context<'_, '_>) -> Result<Vec<Value>, Failure> {
    let api = &context.api;
    let deployment = operator_quietly(api).await?;
    if deployment.is_forbidden() {
        return Err(Failure::Forbidden(format!(
            "cannot find out whether there is an operator: you may not get {} in namespace {}",
            DEPLOYMENTS.qualified(),
            api.home()
        )));
    }
    let kata = Kata::read(api).await?;
    let state = status::operator_state(api, &kata, context.settings.now()).await?;
    if deployment.known().flatten().is_some() || state == OperatorState::LeaseOnly {
        return Ok(Vec::new());
    }
    let removal = Removal::of(api.home().to_owned(), platform(None, api).await?)?;
    Ok(removal.objects().to_vec())
}

/// What the steps and the removal need, and the caller may not.
async fn not_permitted(
    objects: &[Value],
    context: &Context<'_, '_>,
) -> Result<Option<Refusal>, Failure> {
    let api = &context.api;
    let mut needed = BTreeSet::new();
    let mut need = |kind: Resource, namespace: Option<&str>, verbs: &[&str]| {
        for verb in verbs {
            let verb = (*verb).to_owned();
            let (group, plural) = (kind.group.to_owned(), kind.plural.to_owned());
            needed.insert((verb, group, plural, namespace.map(str::to_owned)));
        }
    };
    need(NODES, None, &["patch"]);
    need(NAMESPACES, None, &["create", "patch", "delete"]);
    need(KATA_CONFIGS, None, &["create", "patch", "delete"]);
    need(PODS, Some(NAME), &["create", "delete"]);
    need(Resource { plural: "pods/log", ..PODS }, Some(NAME), &["get"]);
    need(JOBS, Some(NAME), &["create", "delete"]);
    for object in objects {
        let kind = kind_of(object);
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        // Server-side apply of what is not there asks for both.
        for verb in ["create", "patch", "delete"] {
            let (group, plural) = (kind.group.clone(), kind.plural.clone());
            needed.insert((verb.to_owned(), group, plural, namespace.clone()));
        }
    }
    let mut missing = Vec::new();
    for (verb, group, plural, namespace) in needed {
        if api.may(&verb, &group, &plural, namespace.as_deref()).await? == Some(false) {
            let dot = if group.is_empty() { "" } else { "." };
            let place = namespace.map(|namespace| format!(" in namespace {namespace}"));
            missing.push(format!("{verb} {plural}{dot}{group}{}", place.unwrap_or_default()));
        }
    }
    Ok((!missing.is_empty()).then(|| {
        Refusal::new(
            format!("you may not {}", human::list(&missing, SHOWN)),
            "ask for it, or use another --context or --as; what the run makes, it must be able to remove",
        )
    }))
}

/// What there is of an operator without its Deployment: the run would take it over, and then delete it.
async fn there_already(
    objects: &[Value],
    context: &Context<'_, '_>,
) -> Result<Option<Refusal>, Failure> {
    let api = &context.api;
    let mut there = Vec::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("get {kind} {name}");
        match api.text(&what, &path(object)).await {
            Ok(_) => there.push(format!("{kind} {name}")),
            Err(Trouble::Status(status)) if status.code == 404 => {}
            Err(trouble) => return Err(trouble.denied(&what, &what)),
        }
    }
    let home = api.home();
    if let Read::Known(Some(_)) = api.get::<Value>(NAMESPACES, None, home).await? {
        there.push(format!("Namespace {home}"));
    }
    Ok((!there.is_empty()).then(|| {
        Refusal::new(
            format!(
                "there is no operator, but {} of its name: {}",
                human::count(there.len(), "object"),
                human::list(&there, SHOWN)
            ),
            "install the operator as docs/install.md says, and this command keeps it; or delete these objects, if nothing \
             needs them",
        )
    }))
}

/// The installation of the proof. The node has its label when it begins.
fn installation(arguments: &AcceptArguments, node: &Value) -> InstallArguments {
    let mut selector = format!("{}={NODE}", names::ACCEPT_LABEL);
    // A node of the control plane is selected only if the selector names it.
    let role = names::CONTROL_PLANE_ROLE_LABEL;
    if let Some(value) = node["metadata"]["labels"][role].as_str() {
        selector.push_str(&format!(",{role}={value}"));
    }
    InstallArguments {
        name: NAME.to_owned(),
        node_selector: Some(selector),
        operator_image: arguments.operator_image.clone(),
        payload_image: arguments.payload_image.clone(),
        change: ChangeArguments { yes: true, wait: false, timeout: arguments.timeout },
        dry_run: DryRun::None,
        ..InstallArguments::default()
    }
}

/// Shows the installation's plan, and has the API server check its objects.
async fn try_out(
    install: &InstallArguments,
    node: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let mut trial = InstallArguments { dry_run: DryRun::Server, ..install.clone() };
    let selector = trial.node_selector.as_deref().unwrap_or_default();
    if !selector.contains(names::CONTROL_PLANE_ROLE_LABEL) {
        trial.node = vec![node.to_owned()];
    }
    let interrupt = context.interrupt.clone();
    aside(context, interrupt, async |context: &mut Context<'_, '_>| {
        install::run(&trial, context).await
    })
    .await
}
