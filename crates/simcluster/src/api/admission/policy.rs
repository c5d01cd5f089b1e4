//! ValidatingAdmissionPolicies: their CEL expressions against a write, and the refusal that follows.
//!
//! It never changes an object. What is left out: parameters by a selector (such a binding refuses what it matches), the
//! authorizer, warnings and audit, and requests that write no object of their own (evictions,
//! bindings, scale). The controllers inside the cluster write without a user, and policies do not see them.
//! A real API server also asks for writes that change nothing; here those end before admission.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, Value as Cel};
use serde_json::{Value, json};

use crate::api::authentication::User;
use crate::api::error::{ApiError, FieldError};
use crate::api::server::{ApiServer, Call};
use crate::resource::{NAMESPACES, VALIDATINGADMISSIONPOLICIES, VALIDATINGADMISSIONPOLICYBINDINGS};

/// What is done to an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    /// The object's name.
    pub(crate) name: &'a str,
    /// As it would be stored; null for a deletion.
    pub(crate) object: &'a Value,
    /// As it is stored; null for a creation.
    pub(crate) old: &'a Value,
}

/// Asks every policy that is bound.
///
/// # Errors
/// `422`, or the code of the validation's reason, with the message of the first validation that does not hold.
pub(crate) fn admit(api: &ApiServer, call: &Call<'_>, deed: Deed<'_>) -> Result<(), ApiError> {
    let Some(user) = call.user else { return Ok(()) };
    for binding in api.store.list(&VALIDATINGADMISSIONPOLICYBINDINGS) {
        let name = binding["spec"]["policyName"].as_str().unwrap_or_default();
        let denies = binding["spec"]["validationActions"]
            .as_array()
            .is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
        let Some(policy) = api.store.get(&VALIDATINGADMISSIONPOLICIES, "", name) else { continue };
        let namespace = api.store.get(&NAMESPACES, "", call.namespace).map(|it| &**it);
        let question = Question { call, deed, user, namespace };
        if !denies
            || !question.is_selected_by(&policy["spec"]["matchConstraints"])
            || !(binding["spec"]["matchResources"].is_null()
                || question.is_selected_by(&binding["spec"]["matchResources"]))
        {
            continue;
        }
        let asked =
            match parameters(api, &policy["spec"]["paramKind"], &binding["spec"]["paramRef"]) {
                Ok(Parameters::Of(params)) => question.ask(&policy["spec"], params),
                Ok(Parameters::NotAsked) => Ok(()),
                Err(_) if policy["spec"]["failurePolicy"] == "Ignore" => Ok(()),
                Err(message) => Err(Denial { reason: String::new(), message }),
            };
        if let Err(denial) = asked {
            let text = format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {}",
                binding["metadata"]["name"].as_str().unwrap_or_default(),
                denial.message
            );
            return Err(ApiError::of_policy(call.resource(), deed.name, &denial.reason, &text));
        }
    }
    Ok(())
}

/// The object that a binding passes to the expressions.
enum Parameters<'a> {
    Of(&'a Value),
    /// It does not exist, and then the policy does not apply.
    NotAsked,
}

fn parameters<'a>(
    api: &'a ApiServer,
    kind: &Value,
    reference: &Value,
) -> Result<Parameters<'a>, String> {
    if kind.is_null() {
        return Ok(Parameters::Of(&Value::Null));
    }
    let Some(name) = reference["name"].as_str() else {
        return Err("the simulated API server finds parameters by name only".to_owned());
    };
    let version = kind["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let kind = kind["kind"].as_str().unwrap_or_default();
    let namespace = reference["namespace"].as_str().unwrap_or_default();
    let found = api
        .registry
        .by_kind(group, kind)
        .and_then(|def| api.store.get(&def.resource, namespace, name));
    match (found, reference["parameterNotFoundAction"].as_str()) {
        (Some(found), _) => Ok(Parameters::Of(found)),
        (None, Some("Allow")) => Ok(Parameters::NotAsked),
        (None, _) => {
            Err("failed to configure binding: no params found for policy binding with `Deny` \
                          parameterNotFoundAction"
                .to_owned())
        }
    }
}

/// The errors of the expressions of a policy that is about to be stored.
pub(crate) fn errors(policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (list, field) in [
        ("matchConditions", "expression"),
        ("variables", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
    ] {
        let items = policy["spec"][list].as_array().into_iter().flatten();
        for (index, item) in items.enumerate() {
            let Some(text) = item[field].as_str() else { continue };
            if let Err(error) = &*compiled(text) {
                let place = format!("spec.{list}[{index}].{field}");
                let why = format!("compilation failed: {error}");
                errors.push(FieldError::invalid(place, &item[field], &why));
            }
        }
    }
    errors
}

struct Denial {
    reason: String,
    message: String,
}

impl Denial {
    fn of_error(expression: &Value, error: &str) -> Self {
        let text = expression.as_str().unwrap_or_default().trim();
        let message = format!("expression '{text}' resulted in error: {error}");
        Self { reason: String::new(), message }
    }
}

/// A write, and who asks for it.
struct Question<'a> {
    call: &'a Call<'a>,
    deed: Deed<'a>,
    user: &'a User,
    namespace: Option<&'a Value>,
}

impl Question<'_> {
    /// Whether MatchResources (`resourceRules` and the like) select the write.
    fn is_selected_by(&self, rules: &Value) -> bool {
        let any = |rules: &Value| {
            rules.as_array().into_iter().flatten().any(|rule| self.is_named_by(rule))
        };
        let objects = [self.deed.object, self.deed.old];
        any(&rules["resourceRules"])
            && !any(&rules["excludeResourceRules"])
            && self.namespace.is_none_or(|it| selects(&rules["namespaceSelector"], it))
            && (is_empty(&rules["objectSelector"])
                || objects.iter().any(|it| !it.is_null() && selects(&rules["objectSelector"], it)))
    }

    fn is_named_by(&self, rule: &Value) -> bool {
        let resource = self.call.resource();
        let named = |key: &str, wanted: &str| {
            let mut names = rule[key].as_array().into_iter().flatten();
            names.any(|name| name == wanted || name == "*")
        };
        let sub = self.call.subresource;
        let resources = rule["resources"].as_array().into_iter().flatten();
        let mut resources = resources.filter_map(Value::as_str);
        let is_resource = resources.any(|text| {
            let (main, part) = text.split_once('/').unwrap_or((text, ""));
            text == "*/*"
                || ((main == "*" || main == resource.plural) && (part == sub || part == "*"))
        });
        let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
        is_resource
            && named("apiGroups", &resource.group)
            && named("apiVersions", &self.call.def.version)
            && named("operations", self.deed.operation)
            && names.is_none_or(|names| names.iter().any(|name| name == self.deed.name))
            && match rule["scope"].as_str() {
                Some("Namespaced") => self.call.def.namespaced,
                Some("Cluster") => !self.call.def.namespaced,
                _ => true,
            }
    }

    fn ask(&self, policy: &Value, params: &Value) -> Result<(), Denial> {
        let ignores = policy["failurePolicy"] == "Ignore";
        // An error denies, unless the policy wants it ignored.
        let failed = |denial: Denial| if ignores { Ok(()) } else { Err(denial) };
        let mut context = self.context(params);
        for condition in policy["matchConditions"].as_array().into_iter().flatten() {
            match evaluate(&condition["expression"], &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Ok(()),
                Err(error) => return failed(Denial::of_error(&condition["expression"], &error)),
            }
        }
        let mut variables = HashMap::new();
        for variable in policy["variables"].as_array().into_iter().flatten() {
            let expression = &variable["expression"];
            // Each time all of them are copied.
            if expression.as_str().is_some_and(|text| text.contains("variables.")) {
                context.add_variable_from_value("variables", variables.clone());
            }
            // The error of a variable counts only where it is used.
            if let Ok(value) = evaluate(expression, &context) {
                let name = variable["name"].as_str().unwrap_or_default().to_owned();
                variables.insert(name, value);
            }
        }
        context.add_variable_from_value("variables", variables);
        for validation in policy["validations"].as_array().into_iter().flatten() {
            let expression = &validation["expression"];
            match evaluate(expression, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Err(denial(validation, &context)),
                Err(error) if !ignores => return Err(Denial::of_error(expression, &error)),
                Err(_ignored) => {}
            }
        }
        Ok(())
    }

    /// The variables of every expression.
    fn context(&self, params: &Value) -> Context<'static> {
        let Deed { operation, name, object, old } = self.deed;
        let Call { def, namespace, subresource, dry_run, .. } = self.call;
        let kind = json!({"group": def.resource.group, "version": def.version, "kind": def.kind});
        let resource = json!({
            "group": def.resource.group, "version": def.version, "resource": def.resource.plural,
        });
        let request = json!({
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "subResource": subresource, "requestSubResource": subresource,
            "name": name, "namespace": namespace, "operation": operation, "dryRun": dry_run,
            "userInfo": self.user.to_info(),
        });
        let mut context = Context::default();
        context.register_all();
        // It only has a meaning for the type checker, which there is none here.
        context.add_function("dyn", |value: Cel| -> Result<Cel, kube_cel::cel::ExecutionError> {
            Ok(value)
        });
        let null = &Value::Null;
        for (key, value) in [
            ("object", object),
            ("oldObject", old),
            ("request", &request),
            ("params", params),
            ("namespaceObject", self.namespace.unwrap_or(null)),
        ] {
            context.add_variable_from_value(key, cel(value));
        }
        context
    }
}

/// The value in CEL. Whole numbers are signed, as in every object of Kubernetes.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| Cel::Float(number.as_f64().unwrap_or_default()), Cel::Int),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), cel(value)));
            Cel::from(fields.collect::<HashMap<String, Cel>>())
        }
    }
}

fn denial(validation: &Value, context: &Context<'_>) -> Denial {
    let text = |key: &str| validation[key].as_str().map(str::to_owned);
    let computed = match evaluate(&validation["messageExpression"], context) {
        Ok(Cel::String(text)) => Some((*text).clone()),
        _ => None,
    };
    let expression = || text("expression").unwrap_or_default().trim().to_owned();
    let message = computed.or_else(|| text("message"));
    Denial {
        reason: text("reason").unwrap_or_default(),
        message: message.unwrap_or_else(|| format!("failed expression: {}", expression())),
    }
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Whether a LabelSelector selects the object; an empty one selects all.
fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    equal.into_iter().all(|(key, value)| labels[key] == *value)
        && expressions.into_iter().all(|expression| {
            let value = &labels[expression["key"].as_str().unwrap_or_default()];
            let listed =
                || expression["values"].as_array().is_some_and(|values| values.contains(value));
            match expression["operator"].as_str() {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => !value.is_null(),
                _ => value.is_null(),
            }
        })
}

fn evaluate(expression: &Value, context: &Context<'_>) -> Result<Cel, String> {
    match &*compiled(expression.as_str().unwrap_or_default()) {
        Ok(expression) => context.resolve(expression).map_err(|error| error.to_string()),
        Err(error) => Err(error.clone()),
    }
}

type Compiled = Arc<Result<Expression, String>>;

/// An expression, or why it is none. Each is compiled once in a process.
fn compiled(text: &str) -> Compiled {
    static KNOWN: LazyLock<Mutex<BTreeMap<String, Compiled>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(expression) = known.get(text) {
        return Arc::clone(expression);
    }
    // `a.?b.orValue(c)`: since Kubernetes 1.29.
    let parser = Parser::default().enable_optional_syntax(true);
    let expression = Arc::new(parser.parse(text).map_err(|error| error.to_string()));
    known.insert(text.to_owned(), Arc::clone(&expression));
    expression
}
