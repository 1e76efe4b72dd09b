#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/config.h"
#include "cluster/observation.h"
#include "cluster/output.h"
#include "cluster/run.h"
#include "cluster/submissions.h"
#include "sim/exclusive.h"
#include "sim/time.h"
#include "sim/value.h"

namespace spillway::cluster {

class HeldRun;

/// A run that can be held between two instants, looked at, and continued. Handled in whatever
/// pieces, it has the result of `run`.
///
/// A session takes one call at a time. While it is inside one, every other call throws UsageError
/// and has no effect, whether it comes from a policy or a callback of its own run or from another
/// thread. `now`, `num_changes` and `tenants` can be read at any time. A run that has thrown an
/// error while it handled events takes no further calls. One that was interrupted is held at the
/// instant that it has reached.
class Session {
 public:
  Session(Simulation simulation, std::uint64_t seed, RunOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Handles all events up to an instant, that of the horizon at most. Where all requests have
  /// ended, those that follow wait for the next request, or for `observe` or `finish`: whether
  /// ticks, scrapes and samples continue depends on it. Ends early after about `max_events` events,
  /// between two instants; `now` is then before `until`.
  void advance(sim::Time until,
               std::uint64_t max_events = std::numeric_limits<std::uint64_t>::max());
  /// The same up to the instant at which `requests` more have arrived, not counting retries. If
  /// fewer come, up to the last event, or the horizon.
  void advance_by(std::int64_t requests);
  /// The instant up to which events have been handled.
  sim::Time now() const { return now_; }
  /// Whether requests are to come, or have not ended.
  bool has_pending_work() const;
  /// Names of the tenants, those of the workload included.
  const std::vector<std::string>& tenants() const { return tenants_; }
  /// State of gateway and fleet now: as the gateway sees it, or the true one.
  Observation observe(bool is_true);
  /// A request from outside the workload, at an instant after now. Returns its number, or nothing:
  /// this takes a session of a simulation with that change, advanced to now.
  std::optional<std::size_t> submit(const workload::Submission& request, sim::Time at);
  /// The requests from outside the workload, those of the simulation's changes included.
  std::size_t num_submitted() const;
  /// How far one of them has come. Throws UsageError for a number that none of them has, or one
  /// that is forgotten.
  SubmissionStatus status(std::size_t number) const;
  /// Whether the run knows the tenant and the class of a request.
  bool knows(const workload::Submission& request) const;
  /// The client of a submitted request withdraws it after now. Returns when; unset: it has ended.
  /// Throws UsageError where `status` does, and for a request that arrives later.
  std::optional<sim::Time> cancel(std::size_t number);
  /// A submitted request with `prefill_only` is handed off after now. Returns when; unset: it has
  /// ended. Throws UsageError where `cancel` does, and for one that is no such request or is handed
  /// off already.
  struct HandedOff {
    sim::Time at;
    bool is_taken;  ///< false: as of `set`
  };
  std::optional<HandedOff> hand_off(const workload::HandOff& to);
  /// What has happened to submitted requests since the last call. `forgets`: those whose end is
  /// among the events are forgotten.
  std::vector<SubmissionEvent> take_events(bool forgets);
  /// Output tokens of submitted requests up to now.
  std::vector<std::int32_t> progress(std::span<const std::size_t> numbers);
  /// When something happens next, if nothing comes from outside: an event, or tokens; kForever:
  /// never.
  sim::Time next_due();
  /// Changes settings at an instant after now. Throws ConfigError. False: this takes a session of a
  /// simulation with that change, advanced to now.
  bool set(const sim::Value::Map& values, sim::Time at);
  /// Instances, which exist, fail at an instant after now. False: as of `set`.
  bool fail(std::span<const fleet::Fault> faults, sim::Time at);
  /// How often `submit`, `set` and `fail` have taken effect.
  std::size_t num_changes() const { return num_changes_; }
  /// No further request is expected.
  void close();
  /// Handles the remaining events and returns the result. The session is over then.
  Output finish();

 private:
  // Both are calls. The first handles events, the second does not.
  auto handle(const char* call, const auto& work);
  auto ask(const char* call, const auto& work) const;
  HeldRun& run_for(const char* call) const;
  // When a request of which more is to happen can be changed; unset: it has ended.
  std::optional<sim::Time> next_of(const char* call, const HeldRun& run, std::size_t number) const;

  Simulation simulation_;
  std::unique_ptr<HeldRun> run_;
  std::vector<std::string> tenants_;
  std::atomic<sim::Time> now_{sim::Time{0}};
  std::atomic<std::size_t> num_changes_ = 0;
  const char* failed_in_ = nullptr;  // the call in which the run threw an error
  mutable sim::Exclusive calls_{"session", "now_s and seed"};
};

}  // namespace spillway::cluster
