#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/ids.h"
#include "sim/schema/enum.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/token_gaps.h"

namespace spillway::workload {

/// What a request takes along from instances that it lost.
struct Resumption {
  std::uint16_t migrations = 0;
  bool is_due = false;                  ///< it has lost its instance and has no other yet
  bool was_inside = false;              ///< of the instance that it lost last
  bool gives_up = false;                ///< it ends with its instance
  std::int32_t lost_instance = -1;      ///< the last one
  std::int32_t emitted = 0;             ///< output tokens, by instances that it lost
  std::int64_t lost_tokens = 0;         ///< the most in KV memory since it was last scheduled
  std::int64_t recomputed_tokens = 0;   ///< of those
  sim::Time last_token = sim::kUnset;   ///< of `emitted`
  sim::Time first_token = sim::kUnset;  ///< by the instance where it is, if there are `emitted`
  sim::Time enqueued = sim::kUnset;     ///< at the instance that emitted its first token
  sim::Time scheduled = sim::kUnset;
};

/// The copies of a request whose client hedges.
enum class Copies : std::uint8_t {
  one,         ///< no second one was sent
  two,         ///< both were sent, and none has a first token
  first_won,   ///< the first one had its first token first
  second_won,  ///< the second one had
};

/// The state of every request of a run: one row per request, each column written by the stage that
/// owns it.
struct RequestStates {
  // client
  std::vector<std::uint16_t> attempts;  ///< including the current one; kept only if clients retry
  std::vector<sim::Time> retry_after;   ///< of the last answer, 0: none; kept only if clients obey
  std::vector<Copies> copies;           ///< kept only if clients hedge
  // gateway
  std::vector<sim::Time> admitted;    ///< entry to a tenant queue
  std::vector<sim::Time> dispatched;  ///< permit taken
  // router
  std::vector<std::int32_t> instance;  ///< −1: none
  std::vector<std::int16_t>
      rank;  ///< of the instance; −1: none; kept only if an instance has several
  // instance
  std::vector<sim::Time> enqueued;  ///< entry to the engine's queue
  std::vector<sim::Time> scheduled;
  std::vector<sim::Time> first_token;
  std::vector<sim::Time> finished;
  std::vector<std::int32_t>
      emitted;  ///< output tokens; written when the request leaves or the run ends
  std::vector<std::int32_t> preemptions;
  std::vector<std::int32_t> cached_tokens;  ///< of the prompt, found when it first entered the
                                            ///< batch; kept only if looked at
  std::vector<sim::Time> reported_ttft;     ///< kept only if latencies are reported
  std::vector<sim::Time> reported_decode;   ///< kept only if latencies are reported
  std::vector<Resumption> resumptions;      ///< kept only if requests migrate
  // the stage that ends the request
  std::vector<Outcome> outcome;
  std::vector<ReasonCode> reason;

  TokenGaps token_gaps;

  bool reports = false;            ///< whether the `reported_*` columns are kept
  bool resumes = false;            ///< whether the `resumptions` column is kept
  bool keeps_cached = false;       ///< whether the `cached_tokens` column is kept
  bool has_ranks = false;          ///< whether the `rank` column is kept
  bool counts_attempts = false;    ///< whether the `attempts` column is kept
  bool keeps_retry_after = false;  ///< whether the `retry_after` column is kept
  bool keeps_copies = false;       ///< whether the `copies` column is kept

  std::size_t size() const { return outcome.size(); }
  /// Precondition: the request has been routed.
  std::size_t rank_of(sim::RequestId id) const {
    return has_ranks ? static_cast<std::size_t>(rank[id.index()]) : 0;
  }
  /// When the instance where the request is emitted its first token for it; kUnset: it has not.
  sim::Time first_token_here(sim::RequestId id) const {
    const bool is_other = resumes && resumptions[id.index()].emitted > 0;
    return is_other ? resumptions[id.index()].first_token : first_token[id.index()];
  }
  /// New rows are blank.
  void resize(std::size_t size);
  /// A row becomes like another one.
  void copy(sim::RequestId from, sim::RequestId to);
  /// Resets a row to blank, for another request.
  void clear(sim::RequestId id);
};

/// Notified of what happens to a request in an instance, at that instant. These are the simulator's
/// only callbacks.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  /// The request's first token has been emitted; called only if first-token notifications are on.
  virtual void first_token(sim::RequestId id) = 0;
  /// The request has left the instance.
  virtual void finished(sim::RequestId id) = 0;
  /// The request's permit is released. An instance calls this where an event of phase
  /// `permit_release` would be the next one.
  virtual void released(sim::RequestId id) = 0;
};

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::Copies> {
  static constexpr std::array<std::string_view, 4> names{"", "unanswered", "first", "second"};
};
