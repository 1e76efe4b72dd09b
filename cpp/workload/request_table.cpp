#include "workload/request_table.h"

#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "sim/error.h"

namespace spillway::workload {

namespace {

// For each of the source's names its position in `known`; unknown names are appended.
template <class Named>
std::vector<std::uint16_t> positions(const std::vector<std::string>& names,
                                     std::vector<Named>& known) {
  std::vector<std::uint16_t> result;
  for (const std::string& name : names) {
    const std::size_t index = sim::index_of_name(known, name);
    if (index == known.size()) {
      Named added;
      added.name = name;
      known.push_back(added);
    }
    result.push_back(static_cast<std::uint16_t>(index));
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

}  // namespace

RequestTable::RequestTable(std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
                           sim::Time warm_up)
    : tenants(std::move(known_tenants)), slo_classes(std::move(known_classes)), warm_up_(warm_up) {}

RequestTable::RequestTable(std::shared_ptr<const Requests> source,
                           std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
                           sim::Time warm_up)
    : RequestTable(std::move(known_tenants), std::move(known_classes), warm_up) {
  source_ = std::move(source);
  names_ = source_;
  columns_ = source_.get();
  resolve(source_->tenants, source_->slo_classes);
}

RequestTable::RequestTable(std::unique_ptr<ArrivalStream> stream,
                           std::shared_ptr<const Requests> names, std::vector<Tenant> known_tenants,
                           std::vector<SloClass> known_classes, sim::Time warm_up)
    : RequestTable(std::move(known_tenants), std::move(known_classes), warm_up) {
  stream_ = std::move(stream);
  names_ = std::move(names);
  columns_ = &window_;
  resolve(stream_->tenants(), stream_->slo_classes());
}

void RequestTable::resolve(const std::vector<std::string>& tenant_names,
                           const std::vector<std::string>& class_names) {
  tenant_of_ = positions(tenant_names, tenants);
  class_of_ = positions(class_names, slo_classes);
}

std::optional<sim::RequestId> RequestTable::next() {
  if (!stream_) {
    if (next_row_ == source_->size()) return std::nullopt;
    return sim::RequestId{static_cast<std::size_t>(next_row_++)};
  }
  const std::optional<Arrival> arrival = stream_->next();
  if (!arrival) return std::nullopt;
  if (next_row_ > std::numeric_limits<std::uint32_t>::max()) {
    throw sim::UsageError("a run takes at most 2^32 requests");
  }
  if (free_.empty()) {
    free_.emplace_back(window_.size());
    window_.arrival.emplace_back();
    window_.input_tokens.emplace_back();
    window_.output_tokens.emplace_back();
    window_.tenant.emplace_back();
    window_.slo_class.emplace_back();
    segments_.emplace_back();
    rows_.emplace_back();
    in_use_.push_back(false);
  }
  const sim::RequestId id = free_.back();
  free_.pop_back();
  const std::size_t slot = id.index();
  window_.arrival[slot] = arrival->time;
  window_.input_tokens[slot] = arrival->input_tokens;
  window_.output_tokens[slot] = arrival->output_tokens;
  window_.tenant[slot] = arrival->tenant;
  window_.slo_class[slot] = arrival->slo_class;
  segments_[slot] = arrival->segments;
  rows_[slot] = static_cast<std::uint32_t>(next_row_++);
  in_use_[slot] = true;
  return id;
}

void RequestTable::retire(sim::RequestId id) {
  if (!stream_) return;
  in_use_[id.index()] = false;
  free_.push_back(id);
}

bool RequestTable::name_before(sim::RequestId a, sim::RequestId b) const {
  const std::uint32_t row_a = row(a);
  const std::uint32_t row_b = row(b);
  const int order = names_ && !names_->request_id.empty()
                        ? names_->request_id[row_a].compare(names_->request_id[row_b])
                        : RowName(row_a).view().compare(RowName(row_b).view());
  return order != 0 ? order < 0 : row_a < row_b;
}

}  // namespace spillway::workload
