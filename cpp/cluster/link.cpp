#include "cluster/link.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace spillway::cluster {

using sim::RequestId;
using sim::Time;

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// 1 GB/s is 1 byte per ns.
double bytes_per_ns(const std::optional<double>& gb_per_s) {
  return gb_per_s ? *gb_per_s : kUnlimited;
}

Time time_of(double bytes, double bytes_per_ns) {
  if (std::isinf(bytes_per_ns)) return Time{0};
  return Time{static_cast<std::int64_t>(
      std::min(std::ceil(bytes / bytes_per_ns), sim::kLongestSpan_s * 1e9))};
}

}  // namespace

Link::Link(const router::KvLink& config)
    : pair_bytes_per_ns_(bytes_per_ns(config.bandwidth_gb_per_s)),
      shared_bytes_per_ns_(bytes_per_ns(config.shared_bandwidth_gb_per_s)),
      sharing_(config.sharing),
      latency_(sim::from_seconds(config.base_latency_s)),
      max_transfers_(config.max_transfers) {}

void Link::begin(RequestId id, Pair pair, double bytes, Time now) {
  waiting_.push_back({.id = id, .pair = pair, .left_bytes = bytes});
  advance(now);
  start_waiting(now);
}

void Link::drop(RequestId id, Time now) {
  advance(now);
  const auto is_it = [id](const Transfer& transfer) { return transfer.id == id; };
  std::erase_if(waiting_, is_it);
  std::erase_if(active_, is_it);
  start_waiting(now);
}

Time Link::next() const {
  Time next = sim::kForever;
  for (const Transfer& transfer : active_) {
    const bool is_set = transfer.end != sim::kForever;
    next = std::min(next, is_set ? transfer.end : transfer.begun + latency_);
  }
  return next;
}

std::vector<RequestId> Link::take_ended(Time now) {
  advance(now);
  std::vector<RequestId> ended;
  std::erase_if(active_, [&](const Transfer& transfer) {
    if (transfer.end != now) return false;
    ended.push_back(transfer.id);
    return true;
  });
  start_waiting(now);
  return ended;
}

void Link::advance(Time now) {
  for (Transfer& transfer : active_) {
    if (!transfer.moves) continue;
    const double moved = transfer.bytes_per_ns * static_cast<double>((now - since_).ns);
    transfer.left_bytes = std::max(0.0, transfer.left_bytes - moved);
  }
  since_ = now;
}

void Link::start_waiting(Time now) {
  std::erase_if(waiting_, [&](Transfer& transfer) {
    const std::int64_t of_pair = std::ranges::count(active_, transfer.pair, &Transfer::pair);
    if (max_transfers_ > 0 && of_pair >= max_transfers_) return false;
    transfer.begun = now;
    if (sharing_ == router::LinkSharing::fixed_share) {
      const double rate = std::min(pair_bytes_per_ns_ / static_cast<double>(of_pair + 1),
                                   shared_bytes_per_ns_ / static_cast<double>(active_.size() + 1));
      transfer.end = now + std::max(Time{1}, latency_ + time_of(transfer.left_bytes, rate));
    }
    active_.push_back(transfer);
    return true;
  });
  if (sharing_ == router::LinkSharing::max_min) share_fairly(now);
}

// Fills the bandwidths: pairs with the least for each of their transfers first.
void Link::share_fairly(Time now) {
  struct Share {
    Pair pair;
    std::int64_t transfers = 0;
    double rate = 0;
  };
  std::vector<Share> shares;
  std::int64_t unfilled = 0;
  for (Transfer& transfer : active_) {
    transfer.moves = now >= transfer.begun + latency_;
    if (!transfer.moves) continue;
    ++unfilled;
    const auto found = std::ranges::find(shares, transfer.pair, &Share::pair);
    if (found == shares.end()) {
      shares.push_back({.pair = transfer.pair, .transfers = 1});
    } else {
      ++found->transfers;
    }
  }
  std::ranges::sort(shares, [](const Share& a, const Share& b) {
    return a.transfers != b.transfers ? a.transfers > b.transfers : a.pair < b.pair;
  });
  double left = shared_bytes_per_ns_;
  for (Share& share : shares) {
    const auto transfers = static_cast<double>(share.transfers);
    share.rate = std::min(pair_bytes_per_ns_ / transfers, left / static_cast<double>(unfilled));
    if (!std::isinf(left)) left = std::max(0.0, left - share.rate * transfers);
    unfilled -= share.transfers;
  }
  for (Transfer& transfer : active_) {
    transfer.end = sim::kForever;
    if (!transfer.moves) continue;
    transfer.bytes_per_ns = std::ranges::find(shares, transfer.pair, &Share::pair)->rate;
    transfer.end = std::max(transfer.begun + Time{1},
                            now + time_of(transfer.left_bytes, transfer.bytes_per_ns));
  }
}

}  // namespace spillway::cluster
