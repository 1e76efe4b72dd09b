#include "workload/request_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "sim/error.h"
#include "sim/names.h"
#include "workload/length_predictor.h"
#include "workload/trace.h"

namespace spillway::workload {

namespace {

// The position in `known` of each of the source's names; unknown names are appended.
template <class Named>
std::vector<std::uint16_t> positions(const std::vector<std::string>& names,
                                     std::vector<Named>& known) {
  const std::vector<Named> given = known;
  const sim::NameIndex index(given, &Named::name);
  std::vector<std::uint16_t> result;
  for (const std::string& name : names) {
    if (index.has(name)) {
      result.push_back(static_cast<std::uint16_t>(index.of(name)));
      continue;
    }
    result.push_back(static_cast<std::uint16_t>(known.size()));
    Named added;
    added.name = name;
    known.push_back(added);
  }
  return result;
}

// A row number as text.
class RowName {
 public:
  explicit RowName(std::uint32_t row)
      : length_(static_cast<std::size_t>(
            std::to_chars(text_.data(), text_.data() + text_.size(), row).ptr - text_.data())) {}
  std::string_view view() const { return {text_.data(), length_}; }

 private:
  std::array<char, 10> text_{};
  std::size_t length_;
};

LengthPredictor::Facts facts_of(const RequestTable& requests, sim::RequestId id) {
  return {.row = requests.row(id),
          .input_tokens = requests.input_tokens(id),
          .output_tokens = requests.target_output_tokens(id),
          .max_tokens = requests.max_tokens(id),
          .slo_class = requests.slo_class(id),
          .group = requests.group(id)};
}

}  // namespace

RequestTable::~RequestTable() = default;

RequestTable::RequestTable(std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
                           sim::Time warm_up)
    : tenants(std::move(known_tenants)), slo_classes(std::move(known_classes)), warm_up_(warm_up) {
  models_.position("");
}

RequestTable::RequestTable(std::shared_ptr<const Requests> source,
                           std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
                           sim::Time warm_up)
    : RequestTable(std::move(known_tenants), std::move(known_classes), warm_up) {
  source_ = std::move(source);
  names_ = source_;
  columns_ = source_.get();
  arrivals_ = &columns_->arrival;
  resolve(source_->tenants, source_->slo_classes, source_->models);
}

RequestTable::RequestTable(std::unique_ptr<ArrivalStream> stream, bool keeps_all,
                           std::shared_ptr<const Requests> names, std::vector<Tenant> known_tenants,
                           std::vector<SloClass> known_classes, sim::Time warm_up)
    : RequestTable(std::move(known_tenants), std::move(known_classes), warm_up) {
  keeps_all_ = keeps_all;
  stream_ = std::move(stream);
  names_ = std::move(names);
  taken_ = std::make_shared<Requests>();
  if (keeps_all_) {
    if (stream_->shares_segments()) taken_->segment_begin.push_back(0);
    source_ = taken_;
  }
  columns_ = taken_.get();
  arrivals_ = &columns_->arrival;
  resolve(stream_->tenants(), stream_->slo_classes(), stream_->models());
  next_ = stream_->next();
}

void RequestTable::predict_lengths(const LengthPrediction& config, std::uint64_t seed) {
  predictor_ = std::make_unique<LengthPredictor>(config, slo_classes.size(), num_groups(), seed);
}

// A learned prediction stays what it was at the arrival of the attempt.
void RequestTable::arrived(sim::RequestId id) {
  if (predictions_.size() <= id.index()) predictions_.resize(2 * id.index() + 1);
  predictions_[id.index()] = predictor_->predict(facts_of(*this, id));
}

void RequestTable::completed(sim::RequestId id) { predictor_->completed(facts_of(*this, id)); }

std::int32_t RequestTable::prediction_of(sim::RequestId id) const {
  return predictor_->learns() ? predictions_[id.index()] : predictor_->predict(facts_of(*this, id));
}

void RequestTable::keep_attempts() {
  keeps_attempts_ = true;
  attempts_ = columns_->arrival;
  arrivals_ = &attempts_;
}

void RequestTable::share_from_outside() {
  shares_from_outside_ = true;
  if (stream_ && keeps_all_ && taken_->segment_begin.empty()) taken_->segment_begin.push_back(0);
}

void RequestTable::know(const std::vector<std::string>& tenant_names,
                        const std::vector<std::string>& class_names) {
  positions(tenant_names, tenants);
  positions(class_names, slo_classes);
  note_models_of_tenants();
}

void RequestTable::know_models(const std::vector<std::string>& names) {
  for (const std::string& name : names) position_of_model(name);
}

void RequestTable::resolve(const std::vector<std::string>& tenant_names,
                           const std::vector<std::string>& class_names,
                           const std::vector<std::string>& model_names) {
  tenant_of_ = positions(tenant_names, tenants);
  class_of_ = positions(class_names, slo_classes);
  for (const std::string& name : model_names) model_of_.push_back(position_of_model(name));
  note_models_of_tenants();
}

void RequestTable::note_models_of_tenants() {
  model_of_tenant_.clear();
  for (const Tenant& tenant : tenants) model_of_tenant_.push_back(position_of_model(tenant.model));
}

sim::Time RequestTable::next_arrival() const {
  if (stream_) return next_ ? next_->time : sim::kForever;
  const std::size_t size = std::min<std::size_t>(source_->size(), first_beside_);
  return next_row_ < size ? source_->arrival[next_row_] : sim::kForever;
}

sim::RequestId RequestTable::take_next(sim::Time now) {
  if (!stream_) return sim::RequestId{static_cast<std::size_t>(next_row_++)};
  Arrival arrival = next_.value_or(Arrival{});
  arrival.time = now;
  const sim::RequestId id = add(arrival);
  if (keeps_names_) taken_->request_id[id.index()] = names_->request_id[num_of_source_];
  if (moves_rows_) source_rows_[id.index()] = static_cast<std::uint32_t>(num_of_source_);
  ++num_of_source_;
  next_ = stream_->next();
  return id;
}

void RequestTable::copy_from_now_on() {
  const auto size = static_cast<std::ptrdiff_t>(next_row_);
  const auto head = [&](const auto& column) {
    return std::vector(column.begin(), column.begin() + size);
  };
  taken_ = std::make_shared<Requests>();
  taken_->arrival = head(source_->arrival);
  taken_->input_tokens = head(source_->input_tokens);
  taken_->output_tokens = head(source_->output_tokens);
  taken_->tenant = head(source_->tenant);
  taken_->slo_class = head(source_->slo_class);
  if (source_->segment_begin.empty()) {
    if (shares_from_outside_) taken_->segment_begin.resize(next_row_ + 1);
  } else {
    const auto& begin = source_->segment_begin;
    taken_->segment_begin.assign(begin.begin(), begin.begin() + size + 1);
    taken_->segments.assign(source_->segments.begin(),
                            source_->segments.begin() + begin[next_row_]);
  }
  if (!source_->answer.empty()) taken_->answer = head(source_->answer);
  if (!source_->max_tokens.empty()) taken_->max_tokens = head(source_->max_tokens);
  if (!source_->model.empty()) taken_->model = head(source_->model);
  num_of_source_ = next_row_;
  stream_ = stream(source_, next_row_);
  next_ = stream_->next();
  source_ = taken_;
  columns_ = taken_.get();
  if (keeps_attempts_) {
    attempts_.resize(next_row_);
  } else {
    arrivals_ = &columns_->arrival;
  }
}

void RequestTable::keep_source_rows() {
  if (moves_rows_ || attributes().empty()) return;
  moves_rows_ = true;
  source_rows_.resize(capacity(), Attribute::kNone);
  for (std::size_t slot = 0; slot < capacity(); ++slot) {
    const sim::RequestId id{slot};
    if (in_use(id)) source_rows_[slot] = row(id);
  }
}

std::uint32_t RequestTable::attribute(sim::RequestId id, std::size_t i) const {
  const std::uint32_t of_source = moves_rows_ ? source_rows_[id.index()] : row(id);
  return of_source == Attribute::kNone ? of_source : names_->attributes[i].code[of_source];
}

void RequestTable::keep_names() {
  if (keeps_names_ || !names_ || names_->request_id.empty()) return;
  keeps_names_ = true;
  taken_->request_id.resize(capacity());
  for (std::size_t slot = 0; slot < capacity(); ++slot) {
    const sim::RequestId id{slot};
    if (in_use(id)) taken_->request_id[slot] = names_->request_id[row(id)];
  }
}

sim::RequestId RequestTable::add_from_outside(const Submission& request,
                                              std::span<const Segment> segments, std::size_t tenant,
                                              std::size_t slo_class, sim::Time now) {
  if (!stream_) copy_from_now_on();
  keep_names();
  keep_source_rows();
  // The columns hold indices of the source.
  const auto index_of = [](std::vector<std::uint16_t>& positions, std::size_t position) {
    const auto found = std::ranges::find(positions, position);
    const auto index = static_cast<std::uint16_t>(found - positions.begin());
    if (found == positions.end()) positions.push_back(static_cast<std::uint16_t>(position));
    return index;
  };
  std::uint16_t model = 0;
  if (!request.model.empty()) {
    model = static_cast<std::uint16_t>(1 + index_of(model_of_, position_of_model(request.model)));
  }
  const sim::RequestId id =
      add({.time = now,
           .input_tokens = static_cast<std::int32_t>(request.input_tokens),
           .output_tokens = static_cast<std::int32_t>(request.output_tokens),
           .tenant = index_of(tenant_of_, tenant),
           .slo_class = index_of(class_of_, slo_class),
           .segments = segments,
           .max_tokens = static_cast<std::int32_t>(request.max_tokens.value_or(0)),
           .model = model});
  if (keeps_names_) {
    taken_->request_id[id.index()] = "submitted-" + std::to_string(num_from_outside_);
  }
  if (empty_outputs_fail_) {
    from_outside_.resize(capacity());
    from_outside_[id.index()] = true;
  }
  if (moves_rows_) source_rows_[id.index()] = Attribute::kNone;
  ++num_from_outside_;
  return id;
}

void RequestTable::set_output(sim::RequestId id, std::int64_t output_tokens,
                              std::int64_t max_tokens) {
  taken_->output_tokens[id.index()] = static_cast<std::int32_t>(output_tokens);
  if (max_tokens > 0) taken_->max_tokens.resize(taken_->size());
  if (taken_->max_tokens.empty()) return;
  taken_->max_tokens[id.index()] = static_cast<std::int32_t>(max_tokens);
}

sim::RequestId RequestTable::add(const Arrival& arrival) {
  if (next_row_ > std::numeric_limits<std::uint32_t>::max()) {
    throw sim::UsageError("a run takes at most 2^32 requests");
  }
  if (free_.empty()) {
    free_.emplace_back(taken_->size());
    taken_->arrival.emplace_back();
    taken_->input_tokens.emplace_back();
    taken_->output_tokens.emplace_back();
    taken_->tenant.emplace_back();
    taken_->slo_class.emplace_back();
    if (!taken_->max_tokens.empty()) taken_->max_tokens.emplace_back();
    if (!taken_->model.empty()) taken_->model.emplace_back();
    if (keeps_attempts_) attempts_.emplace_back();
    if (keeps_names_) taken_->request_id.emplace_back();
    if (moves_rows_) source_rows_.push_back(Attribute::kNone);
    if (!keeps_all_) {
      segments_.emplace_back();
      if (stream_->shares_answers()) answers_.emplace_back();
      rows_.emplace_back();
      in_use_.push_back(false);
    }
  }
  const sim::RequestId id = free_.back();
  free_.pop_back();
  const std::size_t slot = id.index();
  taken_->arrival[slot] = arrival.time;
  taken_->input_tokens[slot] = arrival.input_tokens;
  taken_->output_tokens[slot] = arrival.output_tokens;
  taken_->tenant[slot] = arrival.tenant;
  taken_->slo_class[slot] = arrival.slo_class;
  if (arrival.max_tokens > 0) taken_->max_tokens.resize(taken_->size());
  if (!taken_->max_tokens.empty()) taken_->max_tokens[slot] = arrival.max_tokens;
  if (arrival.model > 0) taken_->model.resize(taken_->size());
  if (!taken_->model.empty()) taken_->model[slot] = arrival.model;
  if (keeps_attempts_) attempts_[slot] = arrival.time;
  const auto row = static_cast<std::uint32_t>(next_row_++);
  if (!keeps_all_) {
    segments_[slot] = arrival.segments;
    if (!answers_.empty()) answers_[slot] = arrival.answer;
    rows_[slot] = row;
    in_use_[slot] = true;
  } else if (!taken_->segment_begin.empty()) {
    taken_->segments.insert(taken_->segments.end(), arrival.segments.begin(),
                            arrival.segments.end());
    taken_->segment_begin.push_back(static_cast<std::uint32_t>(taken_->segments.size()));
    if (stream_->shares_answers()) taken_->answer.push_back(arrival.answer);
  }
  return id;
}

sim::RequestId RequestTable::retry_beside(sim::RequestId held, sim::Time now) {
  if (keeps_all_) {
    const sim::RequestId id = append_beside(held);
    attempts_.push_back(now);
    return id;
  }
  const std::size_t from = held.index();
  const std::uint64_t next_row = next_row_;
  const sim::RequestId id = add({.time = taken_->arrival[from],
                                 .input_tokens = taken_->input_tokens[from],
                                 .output_tokens = taken_->output_tokens[from],
                                 .tenant = taken_->tenant[from],
                                 .slo_class = taken_->slo_class[from],
                                 .segments = segments_[from],
                                 .answer = answer(held),
                                 .max_tokens = max_tokens(held),
                                 .model = taken_->model_of(from)});
  next_row_ = next_row;
  rows_[id.index()] = rows_[from];
  attempts_[id.index()] = now;
  if (keeps_names_) taken_->request_id[id.index()] = taken_->request_id[from];
  if (moves_rows_) source_rows_[id.index()] = source_rows_[from];
  if (empty_outputs_fail_) {
    from_outside_.resize(capacity());
    from_outside_[id.index()] = is_from_outside(held);
  }
  return id;
}

// Requests that several runs share are copied for it.
sim::RequestId RequestTable::append_beside(sim::RequestId held) {
  if (stream_) {
    throw sim::UsageError(
        "a client sends another attempt while a server holds the last one: with closed loops, "
        "requests from outside the workload or max_in_flight this needs metrics.streaming");
  }
  if (!taken_) {
    taken_ = std::make_shared<Requests>(*source_);
    first_beside_ = static_cast<std::uint32_t>(source_->size());
    source_ = taken_;
    columns_ = taken_.get();
  }
  const std::size_t from = held.index();
  const sim::RequestId id{taken_->size()};
  const auto repeat = [from](auto& column) {
    if (!column.empty()) column.push_back(column[from]);
  };
  repeat(taken_->arrival);
  repeat(taken_->input_tokens);
  repeat(taken_->output_tokens);
  repeat(taken_->tenant);
  repeat(taken_->slo_class);
  repeat(taken_->answer);
  repeat(taken_->max_tokens);
  repeat(taken_->model);
  if (!taken_->segment_begin.empty()) {
    const auto segments = taken_->segments_of(from);
    const std::vector<Segment> copy(segments.begin(), segments.end());
    taken_->segments.insert(taken_->segments.end(), copy.begin(), copy.end());
    taken_->segment_begin.push_back(static_cast<std::uint32_t>(taken_->segments.size()));
  }
  rows_beside_.push_back(row(held));
  return id;
}

void RequestTable::settle(const std::function<bool(sim::RequestId, sim::RequestId)>& moves) {
  if (rows_beside_.empty()) return;
  standing_.resize(first_beside_);
  std::iota(standing_.begin(), standing_.end(), 0);
  for (std::size_t i = 0; i < rows_beside_.size(); ++i) {
    const sim::RequestId from{first_beside_ + i};
    const sim::RequestId to{static_cast<std::size_t>(rows_beside_[i])};
    if (!moves(from, to)) continue;
    attempts_[to.index()] = attempts_[from.index()];
    if (!predictions_.empty()) predictions_[to.index()] = predictions_[from.index()];
    standing_[to.index()] = from.value;
  }
}

void RequestTable::retire(sim::RequestId id) {
  if (keeps_all_) return;
  in_use_[id.index()] = false;
  if (is_from_outside(id)) from_outside_[id.index()] = false;
  free_.push_back(id);
}

bool RequestTable::name_before(sim::RequestId a, sim::RequestId b) const {
  const std::uint32_t row_a = row(a);
  const std::uint32_t row_b = row(b);
  const int order = keeps_names_
                        ? taken_->request_id[a.index()].compare(taken_->request_id[b.index()])
                    : names_ && !names_->request_id.empty()
                        ? names_->request_id[row_a].compare(names_->request_id[row_b])
                        : RowName(row_a).view().compare(RowName(row_b).view());
  return order != 0 ? order < 0 : row_a < row_b;
}

}  // namespace spillway::workload
