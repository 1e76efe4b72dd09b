#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/observation.h"
#include "cluster/output.h"
#include "cluster/run.h"
#include "cluster/submissions.h"
#include "fleet/faults.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

/// A run that is held between two instants. `Session` guards it against calls from inside its own
/// events and from other threads.
class HeldRun {
 public:
  virtual ~HeldRun() = default;

  /// Handles all events up to an instant, those of the instant included.
  virtual void advance(sim::Time until) = 0;
  /// The same while there are requests, or requests to come; ends early after about `max_events`
  /// more events, between two instants. Returns the instant up to which all has happened.
  virtual sim::Time advance_while_busy(sim::Time until, std::uint64_t max_events) = 0;
  /// The same until `requests` more have arrived. Returns the instant up to which all has happened.
  virtual sim::Time advance_by(std::int64_t requests) = 0;

  /// A request from outside the workload, at an instant after all that has happened. Unset: this
  /// takes a run from the start, because this one does not know its tenant or class, or has acted
  /// as if no request would follow.
  virtual std::optional<std::size_t> submit(const workload::Submission& request, sim::Time at) = 0;
  virtual const Submissions& submissions() const = 0;
  /// Whether the run knows the tenant and the class of a request, and its instance.
  virtual bool knows(const workload::Submission& request) const = 0;
  /// The client of a submission that has arrived by then withdraws it at an instant after all that
  /// has happened. Precondition: it is known and has not ended.
  virtual void cancel(std::size_t number, sim::Time at) = 0;
  /// The submission with `prefill_only`, which is known, is handed off at an instant after all that
  /// has happened, once. Precondition: it has arrived by then. False: this takes a run from the
  /// start, because this one has acted as if it would not be.
  virtual bool hand_off(const workload::HandOff& to, sim::Time at) = 0;
  /// See `Submissions::take_events`.
  virtual std::vector<SubmissionEvent> take_events(sim::Time now, bool forgets) = 0;
  /// Brings the tokens of running requests up to an instant up to which all has happened.
  virtual void note_emitted(sim::Time now) = 0;
  /// When something happens after that instant, if nothing comes from outside; kForever: never.
  virtual sim::Time next_due(sim::Time now) = 0;
  /// No further request is expected.
  virtual void close() = 0;
  /// Changes settings at an instant after all that has happened. Throws ConfigError. False: this
  /// takes a run from the start, because of what this one has scheduled or measures.
  virtual bool set(const sim::Value::Map& values, sim::Time at) = 0;

  /// Instances fail at an instant after all that has happened. False: this takes a run from the
  /// start, because in this one no instance may.
  virtual bool fail(std::span<const fleet::Fault> faults, sim::Time at) = 0;

  virtual sim::Time horizon() const = 0;
  /// The instant of the last event.
  virtual sim::Time now() const = 0;
  virtual std::vector<std::string> tenants() const = 0;
  /// Whether requests have pending events, apart from the effects of ticks. Ticks, scrapes and
  /// samples continue as long as they do.
  virtual bool has_pending_work() const = 0;
  /// The state at an instant up to which all events have been handled: the true one, or as the
  /// gateway sees it.
  virtual Observation observe(sim::Time now, bool is_true) = 0;

  /// Ends the run: what has not ended by the horizon is unfinished.
  virtual Output finish() = 0;
};

/// A run that has handled no event yet. Preconditions: the simulation outlives it, is valid, and
/// `check_has_requests`.
std::unique_ptr<HeldRun> hold(const Simulation& simulation, std::uint64_t seed, RunOptions options);

}  // namespace spillway::cluster
