#include "metrics/anomalies.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace spillway::metrics {

namespace {

// Counts in a Fenwick tree over ranks.
class RankCounts {
 public:
  explicit RankCounts(std::size_t size) : tree_(size + 1, 0) {}
  void add(std::size_t rank) {
    for (std::size_t i = rank + 1; i < tree_.size(); i += i & (0 - i)) ++tree_[i];
  }
  // Number of added ranks below `rank`.
  std::int64_t below(std::size_t rank) const {
    std::int64_t sum = 0;
    for (std::size_t i = rank; i > 0; i -= i & (0 - i)) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;
};

std::int64_t count_in_group(std::span<const Served> group) {
  std::vector<double> sorted;
  for (const Served& one : group) sorted.push_back(one.e2e_ns);
  std::sort(sorted.begin(), sorted.end());
  RankCounts earlier(sorted.size());
  std::int64_t pairs = 0;
  std::int64_t seen = 0;
  for (std::size_t begin = 0; begin < group.size();) {
    std::size_t end = begin;
    while (end < group.size() && group[end].arrival == group[begin].arrival) ++end;
    // Requests of one instant are no pair; they are added after all of them have been looked at.
    for (std::size_t i = begin; i < end; ++i) {
      const auto above = std::upper_bound(sorted.begin(), sorted.end(), 2.0 * group[i].e2e_ns);
      pairs += seen - earlier.below(static_cast<std::size_t>(above - sorted.begin()));
    }
    for (std::size_t i = begin; i < end; ++i) {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), group[i].e2e_ns);
      earlier.add(static_cast<std::size_t>(at - sorted.begin()));
      ++seen;
    }
    begin = end;
  }
  return pairs;
}

}  // namespace

std::int64_t count_priority_inversions(std::span<Served> served) {
  std::stable_sort(served.begin(), served.end(), [](const Served& a, const Served& b) {
    return std::tie(a.instance, a.slo_class, a.arrival) <
           std::tie(b.instance, b.slo_class, b.arrival);
  });
  std::int64_t pairs = 0;
  for (std::size_t begin = 0; begin < served.size();) {
    std::size_t end = begin;
    while (end < served.size() && served[end].instance == served[begin].instance &&
           served[end].slo_class == served[begin].slo_class) {
      ++end;
    }
    pairs += count_in_group(served.subspan(begin, end - begin));
    begin = end;
  }
  return pairs;
}

std::int64_t count_head_of_line_blocking(std::span<const double> mean_waiting) {
  if (mean_waiting.size() < 2) return 0;
  const double mean = std::accumulate(mean_waiting.begin(), mean_waiting.end(), 0.0) /
                      static_cast<double>(mean_waiting.size());
  return std::count_if(mean_waiting.begin(), mean_waiting.end(),
                       [&](double waiting) { return waiting > 2.0 * mean; });
}

}  // namespace spillway::metrics
