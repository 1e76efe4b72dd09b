#include "workload/lengths/empirical.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "workload/lengths/lengths.h"

namespace spillway::workload {

namespace {

class EmpiricalLength final : public LengthDistribution {
 public:
  explicit EmpiricalLength(const Empirical& config) : values_(config.values) {
    std::vector<double> weights = config.weights;
    if (weights.empty()) weights.assign(values_.size(), 1.0);
    cumulative_.resize(weights.size());
    std::partial_sum(weights.begin(), weights.end(), cumulative_.begin());
    for (std::size_t i = 0; i < values_.size(); ++i) sorted_.emplace_back(values_[i], weights[i]);
    std::ranges::sort(sorted_);
  }
  std::int64_t tokens(sim::Draws& draws) const override {
    const double target = draws.uniform() * cumulative_.back();
    const auto above = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, target);
    return values_[static_cast<std::size_t>(above - cumulative_.begin())];
  }
  std::int64_t quantile(double p) const override {
    double left = p * cumulative_.back();
    for (const auto& [value, weight] : sorted_) {
      if (weight > 0 && left <= weight) return value;
      left -= weight;
    }
    return sorted_.back().first;
  }

 private:
  std::vector<std::int64_t> values_;
  std::vector<double> cumulative_;
  std::vector<std::pair<std::int64_t, double>> sorted_;  // values and weights
};

}  // namespace

bool Empirical::draws() const {
  std::optional<std::int64_t> known;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!weights.empty() && weights[i] == 0) continue;
    if (known.value_or(values[i]) != values[i]) return true;
    known = values[i];
  }
  return false;
}

void Empirical::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (values.empty()) out.push_back({sim::join_path(path, "values"), "[]", "must not be empty"});
  if (weights.empty()) return;
  if (weights.size() != values.size()) {
    out.push_back({sim::join_path(path, "weights"), std::to_string(weights.size()) + " weights",
                   "must be as many as the " + std::to_string(values.size()) + " values, or none"});
  }
  if (std::accumulate(weights.begin(), weights.end(), 0.0) <= 0) {
    out.push_back({sim::join_path(path, "weights"), "all zero", "must have a positive sum"});
  }
}

std::unique_ptr<LengthDistribution> make(const Empirical& config) {
  return std::make_unique<EmpiricalLength>(config);
}

}  // namespace spillway::workload
