#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "instance/group.h"
#include "signals/scrapes.h"
#include "signals/signal_source.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

namespace spillway::instance {

class Fallible;
class Lockstep;
struct ScheduledStep;

/// What an instance does for a request: all of it, or one of the two legs of a request whose prompt
/// is computed on another instance (`README.md`, "Legs").
enum class Leg : std::uint8_t { whole, prefill, decode };

/// Notified of the legs, at that instant.
class LegListener {
 public:
  virtual ~LegListener() = default;
  /// The prompt has been computed; its blocks stay in memory until `LegEngine::release`.
  virtual void prefill_ended(sim::RequestId id) = 0;
  /// The decode leg has taken blocks for its prompt, of which `missing` are still empty.
  virtual void blocks_taken(sim::RequestId id, std::int64_t missing) = 0;
  /// The decode leg, whose prompt has arrived, has got a seat.
  virtual void seated(sim::RequestId id) = 0;
  /// The request ends without its answer while these tokens of it are in memory, or were before it
  /// was preempted.
  virtual void wasted(sim::RequestId id, std::int64_t tokens) = 0;
  // Where instances may fail:
  /// The instance loses the request with its leg, which is in its queue or batch. Returns whether
  /// that leg is to be sent again; otherwise the request fails.
  [[nodiscard]] virtual bool tries_again(sim::RequestId id) = 0;
  /// The instance has lost what it held of a request: the prompt that its prefill leg has computed,
  /// or its decode leg without the prompt.
  virtual void lost(sim::RequestId id, Leg leg) = 0;
  /// A leg that was held in front of an instance which was not up enters it now.
  virtual void held_leg_enters(sim::RequestId id) = 0;
  /// Or it is lost.
  virtual void held_leg_is_lost(sim::RequestId id) = 0;
};

/// Prompts in the memory of an engine whose requests are neither in its queue nor in its batch.
struct HeldPrompts {
  std::int64_t unread = 0;     ///< of prefill legs that have ended
  std::int64_t receiving = 0;  ///< of decode legs: on their way
};

/// What an instance lost by a fault.
struct Loss {
  std::int64_t requests = 0;   ///< that had entered it, or had reached it
  std::int64_t tokens = 0;     ///< in KV memory
  sim::Time time{0};           ///< since they had entered, over these requests
  std::int64_t migrated = 0;   ///< of the requests: those that went on at other instances
  std::int64_t preempted = 0;  ///< requests that lost their tokens alone
};

/// The legs at an instance.
class LegEngine {
 public:
  virtual ~LegEngine() = default;
  /// Whether the engine could ever hold the leg, which is not `whole`.
  virtual bool accepts(sim::RequestId id, Leg leg) const = 0;
  /// Of a step that starts now, what enters the queue from now on is not a part.
  virtual void begin_step_of_now(sim::Time now) = 0;
  /// The leg enters the queue, or is refused.
  virtual void enqueue_leg(sim::RequestId id, Leg leg, sim::Time now) = 0;
  /// The prompt of a decode leg has arrived in its blocks.
  virtual void arrived(sim::RequestId id, sim::Time now) = 0;
  /// The prompt of a prefill leg that has ended was read, or will not be.
  virtual void release(sim::RequestId id, bool was_read, sim::Time now) = 0;
  /// Or it is continued here, without a leg of its own. Precondition: `accepts` a decode leg.
  virtual void keep(sim::RequestId id, sim::Time now) = 0;
  /// Whether no step is under way or due.
  virtual bool is_idle() const = 0;
  /// Throws InvariantError if any does not hold the blocks of its whole prompt.
  virtual HeldPrompts held_prompts() const = 0;
  /// A decode leg leaves before its prompt has arrived.
  virtual void drop(sim::RequestId id, sim::Time now) = 0;
};

/// What an instance needs from its run.
struct Environment {
  const workload::RequestTable& requests;
  workload::RequestStates& states;
  sim::EventQueue& events;
  workload::RequestListener& listener;
  std::uint64_t seed = 0;
  signals::Scrapes* scrapes = nullptr;  ///< null unless instances are scraped
  std::int64_t quantum_ns = 1;
  bool reports_latencies = false;  ///< write the `reported_*` columns
  bool notifies_first_tokens = false;
  bool meters_tokens = false;  ///< `add_emitted` will be called
  bool reference = false;      ///< perform every step singly and request by request
  /// Where the engines log their steps, each in its own; null: nowhere. Requires `reference`.
  std::vector<std::vector<ScheduledStep>>* step_logs = nullptr;
  Lockstep* lockstep = nullptr;  ///< null unless the engines are ranks that step together
  LegListener* legs = nullptr;   ///< null unless requests have legs
  bool may_fail = false;         ///< instances may crash, hang or slow down
  bool swallows =
      false;  ///< a crashed instance holds a request that reaches it, instead of failing
};

/// How an instance performs its steps. The results are the same.
enum class Stepping : std::uint8_t {
  jumps,      ///< several steps at a time while the batch is unchanged; also plants without steps
  plain,      ///< step by step, as its settings require
  reference,  ///< step by step and request by request, as the run requires
};
inline constexpr std::array<std::string_view, 3> kSteppingNames{"jumps", "plain", "reference"};

/// Counts of one instance over a run.
struct Counters {
  std::int64_t entered = 0;  ///< accepted into the engine's queue
  std::int64_t refused = 0;
  std::int64_t completed = 0;
  std::int64_t cancelled = 0;    ///< withdrawn after entry, for any reason
  std::int64_t handed_over = 0;  ///< prefill legs that ended; decode legs enter as prompts arrive
  std::int64_t lost = 0;         ///< failed in crashes, after entry
  std::int64_t lost_legs = 0;    ///< the same: prompts that were unread, legs without their prompts
  sim::Time lost_time{0};        ///< since both had first entered an engine, over these requests
  std::int64_t preemptions = 0;
  std::int64_t tokens_recomputed = 0;  ///< lost in preemptions and not cached at the return
  std::int64_t tokens_wasted = 0;      ///< of requests that ended without their answer
  std::int64_t steps = 0;
  std::int64_t tokens_emitted = 0;
  double waiting_time_s = 0;  ///< ∫ waiting requests dt
  std::int64_t waiting_after_steps =
      0;                           ///< Σ over steps of the requests left waiting by their start
  std::int64_t kv_hits = 0;        ///< cached KV blocks that requests reused
  std::int64_t kv_misses = 0;      ///< KV blocks taken from the free list
  std::int64_t kv_lookups = 0;     ///< full prompt blocks of the requests that entered the batch
  double peak_kv_utilization = 0;  ///< of any rank
  sim::Time last_event{0};

  /// Adds the counts of another instance over the same time.
  Counters& operator+=(const Counters& other);
};

/// Counts of an ingress and of the engine behind it.
struct IngressCounts {
  std::int64_t entered_at_once = 0;
  std::int64_t entered_from_queue = 0;
  std::int64_t refused = 0;
  std::int64_t unfinished = 0;  ///< in the engine
  std::int64_t awaiting_response =
      0;  ///< in the engine without a first token, if first tokens are notified
  std::int64_t queued = 0;
  std::int64_t most_unfinished = 0;
  std::int64_t most_queued = 0;
};

/// The subject of an event of phase `ingress`; its tie is the instance.
class IngressSubject {
 public:
  static std::uint32_t entry_of(sim::RequestId request) { return request.value; }
  static std::uint32_t place_became_free() { return kNone; }
  explicit IngressSubject(std::uint32_t subject) : subject_(subject) {}
  /// The request that enters; unset: a place became free.
  std::optional<sim::RequestId> request() const {
    if (subject_ == kNone) return std::nullopt;
    return sim::RequestId{subject_};
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::uint32_t subject_;
};

/// A request that will enter the engine's queue.
struct Entry {
  sim::RequestId id;
  sim::Time at{0};
};

/// The server of the requests: the step loop of continuous batching, or another plant. `README.md`
/// in this folder is the exact contract, and defines when several steps may be performed together.
///
/// It sets its alarm in the event queue, which calls `end_step`, and may post a `step_start`.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void start_step(sim::Time /*now*/) {}
  virtual void end_step(sim::Time now) = 0;
};

/// Predicts the behavior of an instance.
class Forecaster {
 public:
  virtual ~Forecaster() = default;
  /// Time of the first token of the last of `entries` if no other request entered from now on;
  /// kUnset: it would be refused. The state does not change.
  virtual sim::Time predict_first_token(std::span<const Entry> entries, sim::Time now) const = 0;
};

/// One model server: an engine, or several data-parallel ones behind one entry.
class Instance : public signals::SignalSource {
 public:
  /// A request has been routed to the rank; it counts there until it has left.
  virtual void sent(std::size_t /*rank*/) {}
  virtual void left(std::size_t /*rank*/) {}
  /// Time from routing to the entry into the engine's queue.
  virtual sim::Time entry_delay(sim::RequestId id) const = 0;
  /// The request enters the queue of the rank's engine, or is refused.
  virtual void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) = 0;
  /// Withdraws a request that has entered at the rank; it ends with `outcome`. A waiting request
  /// leaves immediately, one in the batch at the end of the current step, even if that step emits
  /// its last token. Has no effect on a request that has left or is leaving.
  virtual void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
                      sim::Time now) = 0;
  /// Requests waiting at its ingress enter as far as its limits allow.
  virtual void admit_waiting(sim::Time /*now*/) {}
  /// Requests that have waited there too long are refused.
  virtual void expire(sim::Time /*now*/) {}
  /// Ends the run: advances counters and request states to `end`, inclusive.
  virtual void close(sim::Time end) = 0;

  /// Adds the tokens emitted by the requests of each group up to `now`; the tokens of a step count
  /// from its end.
  virtual void add_emitted(std::span<std::int64_t> by_group, sim::Time now) = 0;

  /// Brings the states' `emitted` of the requests inside up to `now`; tokens count as above.
  virtual void note_emitted(sim::Time now) = 0;
  /// When the next tokens after `now` are emitted whose event is not in the queue; kForever: all of
  /// them have one.
  virtual sim::Time next_token(sim::Time now) = 0;

  // Faults. Precondition: the instance `may_fail`, and its plant is a step loop.
  /// Every request that has entered fails, or ends as it was about to; KV memory becomes empty.
  virtual void crash(sim::Time /*now*/) {}
  /// Nothing happens inside until `resume`, except that a request that is withdrawn leaves at once.
  virtual void suspend(sim::Time /*now*/) {}
  virtual void resume(sim::Time /*now*/) {}
  /// Steps that begin from now on take `factor` times as long as they should.
  virtual void set_slowness(double /*factor*/, sim::Time /*now*/) {}
  /// At the end of the step under way, or now without one, the batch is preempted and nothing is
  /// cached any more, or only the latter. Returns what the batch is about to lose.
  virtual Loss lose_kv(bool /*cached_only*/, sim::Time /*now*/) { return {}; }

  Instance& rank(std::size_t /*i*/) override { return *this; }
  /// Null unless the instance can predict: a step loop without ranks behind an open ingress.
  virtual const Forecaster* forecaster() const { return nullptr; }
  /// Null unless the instance, or the rank, can serve legs: a step loop with steps of its own
  /// behind an open ingress, in a run with legs.
  virtual LegEngine* legs() { return nullptr; }
  /// Null unless the instance may fail.
  virtual Fallible* fallible() { return nullptr; }

  virtual Stepping stepping() const = 0;
  virtual const Counters& counters() const = 0;
  /// Null if its ingress is open.
  virtual const IngressCounts* ingress() const { return nullptr; }
  /// Throws InvariantError unless free and held blocks add up to the total.
  virtual void check_memory() const {}
};

/// Adds the instance's engines to `engines`, whose positions are their ids in the event queue.
std::unique_ptr<Instance> make(const InstanceGroup& group, sim::InstanceId id,
                               const Environment& environment, std::vector<Engine*>& engines);

}  // namespace spillway::instance
