#include "workload/trace.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "sim/value.h"
#include "workload/limits.h"
#include "workload/prompts.h"
#include "workload/requests.h"

namespace spillway::workload {

namespace {

void check_tokens(const std::vector<std::int32_t>& column, std::int32_t min, const char* name,
                  const std::string& path, std::vector<sim::Violation>& out) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    if (column[row] < min || column[row] > kMaxTokens) {
      out.push_back({path + " row " + std::to_string(row) + ", " + name,
                     std::to_string(column[row]),
                     "must be >= " + std::to_string(min) + " and <= " + std::to_string(kMaxTokens) +
                         " (tokens)"});
      return;  // one such row is reported
    }
  }
}

class TraceStream final : public ArrivalStream {
 public:
  TraceStream(std::shared_ptr<const Requests> requests, std::size_t first)
      : requests_(std::move(requests)), row_(first) {}
  std::optional<Arrival> next() override {
    if (row_ == requests_->size()) return std::nullopt;
    const std::size_t row = row_++;
    return Arrival{
        requests_->arrival[row],   requests_->input_tokens[row],  requests_->output_tokens[row],
        requests_->tenant[row],    requests_->slo_class[row],     requests_->segments_of(row),
        requests_->answer_of(row), requests_->max_tokens_of(row), requests_->model_of(row)};
  }
  const std::vector<std::string>& tenants() const override { return requests_->tenants; }
  const std::vector<std::string>& slo_classes() const override { return requests_->slo_classes; }
  std::vector<std::string> models() const override { return requests_->models; }
  bool shares_segments() const override { return !requests_->segments.empty(); }
  bool shares_answers() const override { return !requests_->answer.empty(); }

 private:
  std::shared_ptr<const Requests> requests_;
  std::size_t row_;
};

std::vector<std::string> possible_names(const Trace& trace,
                                        std::vector<std::string> Requests::* column,
                                        std::string Relabel::* name) {
  std::vector<std::string> names;
  if (trace.requests) names = (*trace.requests).*column;
  for (const Transform& transform : trace.transforms) {
    const auto* rule = std::get_if<Relabel>(&transform);
    if (!rule || (rule->*name).empty()) continue;
    if (std::ranges::find(names, rule->*name) == names.end()) names.push_back(rule->*name);
  }
  return names;
}

}  // namespace

void Trace::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (max_in_flight == 0) return;
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    if (!changes_arrivals(transforms[i])) continue;
    const auto name_of = [](const auto& transform) { return sim::Value(transform.kind); };
    out.push_back({sim::index_path(sim::join_path(path, "transforms"), i),
                   sim::to_text(std::visit(name_of, transforms[i])),
                   "must not change arrivals with max_in_flight, where they follow the served "
                   "requests"});
  }
}

std::unique_ptr<ArrivalStream> stream(std::shared_ptr<const Requests> requests, std::size_t first) {
  return std::make_unique<TraceStream>(std::move(requests), first);
}

std::vector<std::string> possible_tenants(const Trace& trace) {
  return possible_names(trace, &Requests::tenants, &Relabel::tenant);
}

std::vector<std::string> possible_slo_classes(const Trace& trace) {
  return possible_names(trace, &Requests::slo_classes, &Relabel::slo_class);
}

void check_requests(const Requests& requests, const std::string& path,
                    std::vector<sim::Violation>& out) {
  const std::size_t n = requests.size();
  if (requests.input_tokens.size() != n || requests.output_tokens.size() != n ||
      requests.tenant.size() != n || requests.slo_class.size() != n ||
      (!requests.answer.empty() && requests.answer.size() != n) ||
      (!requests.max_tokens.empty() && requests.max_tokens.size() != n) ||
      (!requests.warm_tokens.empty() && requests.warm_tokens.size() != n) ||
      (!requests.model.empty() && requests.model.size() != n) ||
      (!requests.request_id.empty() && requests.request_id.size() != n)) {
    out.push_back({path, "", "all columns must be of the same length"});
    return;
  }
  const auto is_unknown = [&](std::uint16_t model) { return model > requests.models.size(); };
  if (std::ranges::any_of(requests.model, is_unknown)) {
    out.push_back({path + ", model", "a number", "must be 0 (none) or that of one of the models"});
    return;
  }
  for (std::size_t i = 0; i < requests.attributes.size(); ++i) {
    const Attribute& attribute = requests.attributes[i];
    const bool is_new =
        std::ranges::none_of(std::span(requests.attributes).first(i),
                             [&](const Attribute& other) { return other.name == attribute.name; });
    const bool has_values = std::ranges::all_of(attribute.code, [&](std::uint32_t code) {
      return code == Attribute::kNone || code < attribute.values.size();
    });
    if (is_new && has_values && attribute.code.size() == n && !attribute.name.empty()) continue;
    out.push_back({path + ", attribute", "'" + attribute.name + "'",
                   "must have a name of its own and one known value, or none, per request"});
    return;
  }
  const auto& accepted = requests.accepted_begin;
  if (!accepted.empty() &&
      (accepted.size() != n + 1 || accepted.front() != 0 ||
       accepted.back() != requests.accepted.size() || !std::ranges::is_sorted(accepted))) {
    out.push_back({path, "", "accepted_begin must have one ascending offset per request"});
    return;
  }
  check_tokens(requests.input_tokens, 1, "input_tokens", path, out);
  check_tokens(requests.output_tokens, 0, "output_tokens", path, out);
  for (std::size_t row = 0; row < requests.max_tokens.size(); ++row) {
    const std::int32_t most = requests.max_tokens[row];
    const std::int32_t output = requests.output_tokens[row];
    if (most == 0 || (most >= output && most <= kMaxTokens && most > 0)) continue;
    out.push_back({path + " row " + std::to_string(row) + ", max_tokens", std::to_string(most),
                   "must be 0 (none), or >= output_tokens (" + std::to_string(output) +
                       ") and <= " + std::to_string(kMaxTokens)});
    return;
  }
  for (std::size_t row = 0; row < n; ++row) {
    const std::int64_t shared = shared_tokens(requests.segments_of(row));
    if (shared <= requests.input_tokens[row]) continue;
    out.push_back({path + " row " + std::to_string(row) + ", prefix_tokens", std::to_string(shared),
                   "must be <= input_tokens (" + std::to_string(requests.input_tokens[row]) +
                       "), which is the whole prompt"});
    return;
  }
  for (std::size_t row = 0; row < requests.warm_tokens.size(); ++row) {
    const std::int64_t shared = shared_tokens(requests.segments_of(row));
    const std::int64_t warm = requests.warm_tokens[row];
    if (warm >= 0 && warm <= shared) continue;
    out.push_back({path + " row " + std::to_string(row) + ", warm_tokens", std::to_string(warm),
                   "must be >= 0 and <= the shared beginning of the prompt (" +
                       std::to_string(shared) + " tokens)"});
    return;
  }
  for (std::size_t row = 0; row < n; ++row) {
    const sim::Time at = requests.arrival[row];
    const sim::Time previous = row > 0 ? requests.arrival[row - 1] : sim::Time{0};
    if (at < previous || at > sim::from_seconds(sim::kLongestSpan_s)) {
      out.push_back({path + " row " + std::to_string(row) + ", arrival_s",
                     sim::to_text(sim::to_seconds(at)),
                     row > 0 && at < previous
                         ? "must not be earlier than the row before (" +
                               sim::to_text(sim::to_seconds(previous)) + "); sort the trace first"
                         : "must be >= 0 and <= 3.2e9 (s)"});
      return;
    }
  }
}

}  // namespace spillway::workload
