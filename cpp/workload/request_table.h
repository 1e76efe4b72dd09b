#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/ids.h"
#include "sim/time.h"
#include "workload/names.h"
#include "workload/prompts.h"
#include "workload/requests.h"
#include "workload/submission.h"
#include "workload/tenants.h"

namespace spillway::workload {

class LengthPredictor;
struct LengthPrediction;

/// A request that may have left the system: its id may have been reassigned, but its row is unique.
struct RequestHandle {
  sim::RequestId id;
  std::uint32_t row = 0;  ///< position in the order of arrival
};

/// The requests of one run as its stages see them: the source's columns with tenants and classes
/// resolved.
///
/// Either all requests are kept (an id is the row, in order of arrival), or each one only while it
/// is in the system: its id is then reused after `retire`, and `row` identifies the request.
///
/// Each column has a method because the place of a value depends on whether all requests are kept.
class RequestTable {
 public:
  std::vector<Tenant> tenants;
  std::vector<SloClass> slo_classes;

  /// Keeps all requests. Names are resolved against the configured tenants and classes; unknown
  /// ones are appended with defaults.
  RequestTable(std::shared_ptr<const Requests> source, std::vector<Tenant> known_tenants,
               std::vector<SloClass> known_classes, sim::Time warm_up);
  /// Takes requests from a stream, and from `add`; keeps all, or those in the system. `names`:
  /// where requests have names of their own, else null.
  RequestTable(std::unique_ptr<ArrivalStream> stream, bool keeps_all,
               std::shared_ptr<const Requests> names, std::vector<Tenant> known_tenants,
               std::vector<SloClass> known_classes, sim::Time warm_up);
  ~RequestTable();
  // Not movable: `columns_` may point into the table itself.
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  /// Arrival time of the source's next request; kForever: none.
  sim::Time next_arrival() const;
  /// Takes that request, which arrives `now`: at its time or, from a stream, later. Precondition:
  /// there is one.
  sim::RequestId take_next(sim::Time now);
  /// Adds a request from outside the source. Precondition: the source is a stream.
  sim::RequestId add(const Arrival& arrival);
  /// Adds a request from outside the workload, which arrives `now`, of a tenant and a class of the
  /// table, and names a model of the table, or none. From the first one on, requests that several
  /// runs share are copied as they arrive.
  /// `segments` outlive the request.
  sim::RequestId add_from_outside(const Submission& request, std::span<const Segment> segments,
                                  std::size_t tenant, std::size_t slo_class, sim::Time now);
  /// Such a request gets other lengths of its output; `max_tokens`: 0 for none.
  void set_output(sim::RequestId id, std::int64_t output_tokens, std::int64_t max_tokens);
  /// Adds tenants and classes that are not known yet, with defaults. Precondition: the names
  /// differ.
  void know(const std::vector<std::string>& tenant_names,
            const std::vector<std::string>& class_names);
  /// The same of models. Precondition: no request has been taken.
  void know_models(const std::vector<std::string>& names);
  /// The client sends the next attempt. Precondition: `keep_attempts` was called before the first
  /// request.
  void retry(sim::RequestId id, sim::Time now) { attempts_[id.index()] = now; }
  void keep_attempts();
  /// The client sends the next attempt while the last one, `held`, is in the system, which keeps
  /// its id. Returns the new attempt's: of the same row. Precondition: as of `retry`. Throws
  /// UsageError where all requests are kept that arrive from a stream.
  sim::RequestId retry_beside(sim::RequestId held, sim::Time now);
  /// The run has ended: where all requests are kept, each row's id stands for its last attempt
  /// again. Calls `moves(from, to)` for the states; false: the attempt `from` does not stand for
  /// the row.
  void settle(const std::function<bool(sim::RequestId, sim::RequestId)>& moves);
  /// After `settle`: the row's id, if the attempt stands for the row. Precondition: all requests
  /// are kept.
  std::optional<sim::RequestId> settled(sim::RequestId id) const {
    if (standing_.empty()) return id;
    const std::uint32_t to = row(id);
    return standing_[to] == id.value ? std::optional(sim::RequestId{std::size_t{to}})
                                     : std::nullopt;
  }
  /// From now on the source's requests without output fail. Precondition: none has been taken.
  void fail_empty_outputs() { empty_outputs_fail_ = true; }
  /// Requests from outside the workload may share segments. Precondition: none has been taken, and
  /// no instance has been made.
  void share_from_outside();
  /// Every prefix cache holds these from the start. Precondition: no instance has been made.
  void start_warm(std::vector<CachedPart> parts) { warm_parts_ = std::move(parts); }
  std::span<const CachedPart> warm_parts() const { return warm_parts_; }
  /// Output lengths are predicted. Precondition: no request has been taken, and all tenants and
  /// classes are known.
  void predict_lengths(const LengthPrediction& config, std::uint64_t seed);
  /// An attempt has arrived, or a request is complete. To be called if predictions learn.
  void arrived(sim::RequestId id);
  void completed(sim::RequestId id);
  /// The request has left the system: its id may be reused. Does nothing where all requests are
  /// kept.
  void retire(sim::RequestId id);
  /// Ids are below this.
  std::size_t capacity() const { return columns_->size(); }
  /// Whether the id stands for a request, arrived or next.
  bool in_use(sim::RequestId id) const { return keeps_all_ || in_use_[id.index()]; }

  /// Position in the order of arrival.
  std::uint32_t row(sim::RequestId id) const {
    if (!keeps_all_) return rows_[id.index()];
    return id.value < first_beside_ ? id.value : rows_beside_[id.value - first_beside_];
  }
  RequestHandle handle(sim::RequestId id) const { return {id, row(id)}; }
  /// The request behind a handle; unset: it has left the system.
  std::optional<sim::RequestId> find(RequestHandle handle) const {
    if (!in_use(handle.id) || row(handle.id) != handle.row) return std::nullopt;
    return handle.id;
  }
  /// When the current attempt arrived at the gateway.
  sim::Time arrival(sim::RequestId id) const { return (*arrivals_)[id.index()]; }
  /// When the first attempt arrived: the client waits from then on.
  sim::Time first_arrival(sim::RequestId id) const { return columns_->arrival[id.index()]; }
  std::int32_t input_tokens(sim::RequestId id) const { return columns_->input_tokens[id.index()]; }
  std::int32_t output_tokens(sim::RequestId id) const {
    return columns_->output_tokens[id.index()];
  }
  /// Tokens that it emits until it is complete. At least one: its prefill ends with a token.
  std::int32_t target_output_tokens(sim::RequestId id) const {
    return std::max(output_tokens(id), 1);
  }
  /// Maximum of its output that its client states; 0: none.
  std::int32_t max_tokens(sim::RequestId id) const { return columns_->max_tokens_of(id.index()); }
  /// The further columns of the source; their codes are by row of the source.
  std::span<const Attribute> attributes() const {
    return names_ ? std::span(names_->attributes) : std::span<const Attribute>();
  }
  /// Number of the value of its i-th attribute; Attribute::kNone: it has none.
  std::uint32_t attribute(sim::RequestId id, std::size_t i) const;
  /// The output length that decisions see: at least 1.
  std::int32_t predicted_output_tokens(sim::RequestId id) const {
    return predictor_ ? prediction_of(id) : target_output_tokens(id);
  }
  /// Whether it fails as it reaches its instance.
  bool fails(sim::RequestId id) const {
    return empty_outputs_fail_ && output_tokens(id) == 0 && !is_from_outside(id);
  }
  /// The shared segments at the beginning of the prompt.
  std::span<const Segment> segments(sim::RequestId id) const {
    return keeps_all_ ? source_->segments_of(id.index()) : segments_[id.index()];
  }
  /// The content of its output as a segment of later prompts; 0: none repeats it.
  std::uint64_t answer(sim::RequestId id) const {
    return keeps_all_         ? source_->answer_of(id.index())
           : answers_.empty() ? 0
                              : answers_[id.index()];
  }
  /// As in `Requests`; empty unless all requests of a trace are kept.
  std::span<const std::uint8_t> accepted(sim::RequestId id) const {
    if (!keeps_all_ || stream_) return {};
    return source_->accepted_of(row(id));
  }
  /// Whether any prompt shares a segment.
  bool shares_segments() const {
    if (shares_from_outside_) return true;
    return stream_ ? stream_->shares_segments() : !source_->segments.empty();
  }
  /// Index into `tenants`.
  std::uint16_t tenant(sim::RequestId id) const { return tenant_of_[columns_->tenant[id.index()]]; }
  /// The models that requests may name; the first one, "", is none.
  std::span<const std::string> models() const { return models_.names(); }
  /// Index into `models` of the model that it names itself, or else its tenant.
  std::uint16_t model(sim::RequestId id) const {
    if (models().size() == 1) return 0;
    const std::uint16_t own = columns_->model_of(id.index());
    return own > 0 ? model_of_[own - 1] : model_of_tenant_[tenant(id)];
  }
  /// Index into `slo_classes`.
  std::uint16_t slo_class(sim::RequestId id) const {
    return class_of_[columns_->slo_class[id.index()]];
  }
  const SloClass& class_of(sim::RequestId id) const { return slo_classes[slo_class(id)]; }

  /// A tenant's requests of one class are a group, the finest population of statistics.
  std::size_t num_groups() const { return tenants.size() * slo_classes.size(); }
  [[gnu::always_inline]] std::size_t group(sim::RequestId id) const {
    return tenant(id) * slo_classes.size() + slo_class(id);
  }
  /// Whether the request counts in statistics: it arrived after the warm-up.
  bool is_counted(sim::RequestId id) const { return first_arrival(id) >= warm_up_; }

  /// Whether the name of `a` precedes that of `b` as text, the usual last tie-breaker; equal names
  /// are ordered by arrival.
  bool name_before(sim::RequestId a, sim::RequestId b) const;
  /// The source; null if requests are only kept while they are in the system.
  const std::shared_ptr<const Requests>& source() const { return source_; }

 private:
  RequestTable(std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
               sim::Time warm_up);
  std::int32_t prediction_of(sim::RequestId id) const;
  bool is_from_outside(sim::RequestId id) const {
    return id.index() < from_outside_.size() && from_outside_[id.index()];
  }
  // From now on arrivals are copied from the source.
  void copy_from_now_on();
  sim::RequestId append_beside(sim::RequestId held);
  // From now on names are kept by request, because rows are not those of the source.
  void keep_names();
  // The same of the rows of the source, if it has attributes.
  void keep_source_rows();
  void resolve(const std::vector<std::string>& tenant_names,
               const std::vector<std::string>& class_names,
               const std::vector<std::string>& model_names);
  std::uint16_t position_of_model(const std::string& name) {
    return static_cast<std::uint16_t>(models_.position(name));
  }
  void note_models_of_tenants();

  sim::Time warm_up_;
  std::vector<CachedPart> warm_parts_;
  std::vector<std::uint16_t> tenant_of_;  // the source's index → index into `tenants`
  std::vector<std::uint16_t> class_of_;
  InternedNames models_;
  std::vector<std::uint16_t> model_of_;         // the source's index → index into `models_`
  std::vector<std::uint16_t> model_of_tenant_;  // index into `models_`

  bool keeps_all_ = true;
  std::shared_ptr<const Requests> source_;
  std::shared_ptr<const Requests> names_;
  const Requests* columns_ = nullptr;
  const std::vector<sim::Time>* arrivals_ = nullptr;
  std::vector<sim::Time> attempts_;  // arrivals of the current attempts; empty unless kept
  bool keeps_attempts_ = false;
  bool empty_outputs_fail_ = false;
  bool shares_from_outside_ = false;
  std::uint64_t next_row_ = 0;
  // Attempts beside those that servers hold, where all requests are kept: ids behind all rows.
  std::uint32_t first_beside_ = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> rows_beside_;
  std::vector<std::uint32_t> standing_;  // the attempt that stands for each row; empty: its id

  std::unique_ptr<LengthPredictor> predictor_;  // null: predictions are the true lengths
  std::vector<std::int32_t> predictions_;       // by id; only if they learn

  // Only if requests come from a stream:
  std::unique_ptr<ArrivalStream> stream_;
  std::optional<Arrival> next_;
  std::shared_ptr<Requests> taken_;
  bool moves_rows_ = false;  // rows are not those of the source, which has attributes
  std::vector<std::uint32_t> source_rows_;  // by id, then
  bool keeps_names_ = false;                // in `taken_`, because rows are not those of the source
  std::uint64_t num_of_source_ = 0;         // requests taken from the stream
  std::uint64_t num_from_outside_ = 0;
  std::vector<bool> from_outside_;  // by id; only if empty outputs fail
  // Only if requests are not all kept:
  std::vector<std::span<const Segment>> segments_;
  std::vector<std::uint64_t> answers_;  // empty if no prompt repeats an answer
  std::vector<std::uint32_t> rows_;
  std::vector<bool> in_use_;
  std::vector<sim::RequestId> free_;
};

}  // namespace spillway::workload
