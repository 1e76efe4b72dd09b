#pragma once

#include <memory>
#include <vector>

#include "sim/ids.h"

namespace spillway::signals {
class SignalSource;
}

/// What turns the requests of an instance into tokens: a plant, in the words of control theory.
///
/// A plant is an `Instance` and an `Engine` in one. `make(config, group, id, reporter, environment,
/// engines)` builds it and adds it to `engines`, its position there being its id in the event
/// queue. `reporter`: whose state is scraped when this one's changes; null: its own.
///
/// It writes the journal's columns from `enqueued` to `outcome`, takes its scrapes before it
/// changes, notifies the listener of first tokens (if asked to) and of requests that leave, and
/// then posts their `permit_release`.
namespace spillway::instance {

struct InstanceGroup;
struct Environment;
class Instance;
class Engine;

}  // namespace spillway::instance
