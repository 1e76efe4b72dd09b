#pragma once

#include <memory>
#include <vector>

#include "sim/ids.h"

namespace spillway::signals {
class SignalSource;
}

/// The plant of an instance, in the sense of control theory: the process that turns requests into
/// tokens.
///
/// A plant is both an `Instance` and an `Engine`. `make(config, group, id, reporter, environment,
/// engines)` builds it and adds it to `engines`; its position there is its id in the event queue.
/// `reporter`: the source that is scraped when the state of this plant changes; null: the plant
/// itself.
///
/// It writes the request states from `enqueued` to `outcome`, takes its scrapes before its state
/// changes, notifies the listener of first tokens (if requested) and of requests that leave, and
/// then posts their `permit_release`.
namespace spillway::instance {

struct InstanceGroup;
struct Environment;
class Instance;
class Engine;

}  // namespace spillway::instance
