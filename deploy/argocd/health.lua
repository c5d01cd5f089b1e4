-- Health of a KataConfig for Argo CD, from the conditions that kstatus knows.
-- Without a script Argo CD calls a KataConfig healthy as soon as it exists.
local health = { status = "Progressing", message = "the operator has not looked at it yet" }
if obj.status == nil or obj.status.conditions == nil then
  return health
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "being deleted"
  if holds("DeletionBlocked") then
    health.status = "Degraded"
    health.message = conditions.DeletionBlocked.message
  end
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "the operator has not looked at the last change yet"
  return health
end
if holds("Stalled") then
  return { status = "Degraded", message = conditions.Stalled.message }
end
if holds("Reconciling") then
  return { status = "Progressing", message = conditions.Reconciling.message }
end
if holds("Degraded") then
  return { status = "Degraded", message = conditions.Degraded.message }
end
if holds("Ready") then
  return { status = "Healthy", message = conditions.Ready.message }
end
if conditions.Ready ~= nil then
  health.message = conditions.Ready.message
  -- Somebody paused the roll-out, and only they continue it.
  if conditions.Ready.reason == "RolloutPaused" or conditions.Ready.reason == "PoolPaused" then
    health.status = "Suspended"
  end
end
return health
