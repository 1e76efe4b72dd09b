#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/outcome.h"
#include "workload/tenants.h"

namespace spillway::workload {

/// A stretch of a prompt that other prompts may share: two segments with equal content hold the
/// same tokens.
struct Segment {
  std::uint64_t content = 0;
  std::uint32_t tokens = 0;
};

/// What is asked, by whom and when: immutable columns, one row per request in order of arrival,
/// shared by every run that replays them.
///
/// A prompt begins with its shared segments; the rest of its `input_tokens` are its own.
struct Requests : sim::Attachment {
  std::vector<sim::Time> arrival;
  std::vector<std::int32_t> input_tokens;   ///< whole prompt, shared segments included; ≥ 1
  std::vector<std::int32_t> output_tokens;  ///< ≥ 0
  std::vector<std::uint16_t> tenant;        ///< index into `tenants`
  std::vector<std::uint16_t> slo_class;     ///< index into `slo_classes`
  std::vector<Segment> segments;
  std::vector<std::uint32_t>
      segment_begin;  ///< size() + 1 offsets; empty where no prompt shares anything
  std::vector<std::string> request_id;  ///< the source's names; empty: the row numbers
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;

  std::size_t size() const { return arrival.size(); }
  std::string name(std::size_t row) const {
    return request_id.empty() ? std::to_string(row) : request_id[row];
  }
  /// Rank of each row among all by the text of its name: the field's last resort in ties. Computed
  /// when first asked for; runs on several threads may ask.
  const std::vector<std::uint32_t>& name_ranks() const;

 private:
  mutable std::once_flag ranked_;
  mutable std::vector<std::uint32_t> name_ranks_;
};

inline constexpr std::int32_t kMaxTokens = 100'000'000;

/// The life of every request in one run: one row each, written by the stage that owns the column.
struct Journal {
  explicit Journal(std::size_t size);

  // gateway
  std::vector<sim::Time> admitted;    ///< entry to a tenant queue
  std::vector<sim::Time> dispatched;  ///< permit taken
  // router
  std::vector<std::int32_t> instance;  ///< −1: none
  // instance
  std::vector<sim::Time> enqueued;  ///< entry to the engine's queue
  std::vector<sim::Time> scheduled;
  std::vector<sim::Time> first_token;
  std::vector<sim::Time> last_token;
  std::vector<sim::Time> finished;
  std::vector<std::int32_t> emitted;  ///< output tokens so far
  std::vector<std::int32_t> preemptions;
  std::vector<sim::Time> reported_ttft;    ///< only with metrics.accounting = blis
  std::vector<sim::Time> reported_decode;  ///< only with metrics.accounting = blis
  // whichever stage ends it
  std::vector<Outcome> outcome;
  std::vector<ReasonCode> reason;
};

/// A tenant's requests of one class: the finest population that statistics are kept for.
struct Group {
  std::uint16_t tenant = 0;
  std::uint16_t slo_class = 0;
  friend bool operator==(const Group&, const Group&) = default;
};

/// What the stages of one run know of a request: the source's columns with tenants and classes
/// resolved.
struct RequestTable {
  std::shared_ptr<const Requests> source;
  std::vector<Tenant> tenants;
  std::vector<SloClass> slo_classes;
  std::vector<std::uint16_t> tenant;     ///< row → index into `tenants`
  std::vector<std::uint16_t> slo_class;  ///< row → index into `slo_classes`
  /// Row → index into `groups`, or kNoGroup for requests that arrive during the warm-up.
  std::vector<std::uint16_t> group;
  std::vector<Group> groups;

  static constexpr std::uint16_t kNoGroup = 0xFFFF;

  /// Resolves names against the configured tenants and classes; unknown ones are appended with
  /// defaults.
  RequestTable(std::shared_ptr<const Requests> requests, std::vector<Tenant> known_tenants,
               std::vector<SloClass> known_classes, sim::Time warm_up);

  std::size_t size() const { return source->size(); }
  sim::Time arrival(sim::RequestId id) const { return source->arrival[id.index()]; }
  std::int32_t input_tokens(sim::RequestId id) const { return source->input_tokens[id.index()]; }
  std::int32_t output_tokens(sim::RequestId id) const { return source->output_tokens[id.index()]; }
  const SloClass& class_of(sim::RequestId id) const { return slo_classes[slo_class[id.index()]]; }
};

/// Told when a request leaves an instance for good. The only callback of the simulator.
class FinishListener {
 public:
  virtual ~FinishListener() = default;
  virtual void finished(sim::RequestId id) = 0;
};

}  // namespace spillway::workload
