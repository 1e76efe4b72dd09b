// The legs of a request on two instances: when its prompt is computed, moved and continued, against
// values by hand; with jumps as without, in random cases; memory after every event.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "instance/instance.h"
#include "legs_bench.h"
#include "sim/rng.h"

using namespace spillway;
using instance::InstanceGroup;
using sim::Time;
using workload::Outcome;

namespace {

// A step takes 100 us, 10 us per token of a prompt and 1 us per decoding request.
InstanceGroup server() {
  InstanceGroup group{.max_num_seqs = 8,
                      .max_num_batched_tokens = 64,
                      .max_model_len = 0,
                      .block_size_tokens = 4,
                      .num_kv_blocks = 100,
                      .latency = instance::Linear{.alpha0_us = 0,
                                                  .alpha_input_us = 0,
                                                  .alpha_output_us = 0,
                                                  .beta0_us = 100,
                                                  .beta_prefill_us = 10,
                                                  .beta_decode_us = 1,
                                                  .beta_context_us = 0},
                      .async_scheduling = false};
  group.kv_cache.reserve_full_prompt = false;
  return group;
}

constexpr Time us(std::int64_t n) { return Time{n * 1000}; }

struct Offered {
  workload::Requests requests;
  LegsBench::Setup setup{.classes = {{.name = "high", .priority = 2}, {.name = "low"}},
                         .prefill = {server()},
                         .decode = {server()},
                         .transfer = us(58)};

  Offered() {
    requests.tenants = {"default"};
    requests.slo_classes = {"high", "low"};
    requests.segment_begin = {0};
  }
  void add(Time at, std::int32_t input, std::int32_t output, Time cancelled = sim::kForever,
           bool is_remote = true, const std::vector<workload::Segment>& shared = {}) {
    requests.slo_class.push_back(static_cast<std::uint16_t>(requests.arrival.size() % 2));
    requests.arrival.push_back(at);
    requests.input_tokens.push_back(input);
    requests.output_tokens.push_back(output);
    requests.tenant.push_back(0);
    requests.segments.insert(requests.segments.end(), shared.begin(), shared.end());
    requests.segment_begin.push_back(static_cast<std::uint32_t>(requests.segments.size()));
    setup.is_remote.push_back(is_remote);
    setup.cancelled.push_back(cancelled);
  }
  std::vector<LegsBench::Row> run(bool reference = false) {
    setup.requests = std::make_shared<workload::Requests>(requests);
    return LegsBench(setup, reference)();
  }
};

void request_passes_both_instances() {
  Offered offered;
  offered.add(us(0), 8, 3);
  const LegsBench::Row row = offered.run().front();
  check(row.prefill_end == us(180), "the prompt takes 100 + 8 * 10");
  check(row.transfer_begin == us(180) && row.transfer_end == us(238), "its transfer follows");
  check(row.moved_blocks == 2, "all blocks of the prompt are moved");
  check(row.first_token == us(348), "the first token takes 100 + 10 on the second instance");
  check(row.finished == us(550), "two steps of one decoding request follow");
  check(row.outcome == Outcome::completed, "the request completes");
}

void unread_prompt_stays_in_memory() {
  Offered offered;
  offered.setup.prefill.front().num_kv_blocks = 3;
  offered.add(us(0), 8, 3);
  offered.add(us(0), 8, 3);
  const auto rows = offered.run();
  check(rows[1].prefill_end == rows[0].transfer_end + us(180),
        "the second prompt waits until the first was read");
}

void leg_without_blocks_blocks_the_queue() {
  Offered offered;
  offered.setup.decode.front().num_kv_blocks = 4;
  offered.add(us(0), 8, 4);
  offered.add(us(0), 12, 2);
  offered.add(us(0), 4, 2);
  const auto rows = offered.run();
  check(rows[1].transfer_begin == rows[0].finished, "the second leg waits for blocks");
  check(rows[2].transfer_begin >= rows[1].transfer_begin, "the third waits behind it");
}

void shared_blocks_are_not_moved_again() {
  Offered offered;
  offered.add(us(0), 16, 1, sim::kForever, true, {{1, 8}});
  offered.add(us(5000), 16, 1, sim::kForever, true, {{1, 8}});
  const auto rows = offered.run();
  check(rows[0].moved_blocks == 4 && rows[1].moved_blocks == 2, "only missing blocks are moved");
}

void withdrawal_frees_both_sides() {
  for (const std::int64_t at : {100, 180, 200, 237, 238, 300, 349}) {
    Offered offered;
    offered.add(us(0), 8, 3, us(at));
    offered.setup.requests = std::make_shared<workload::Requests>(offered.requests);
    LegsBench bench(offered.setup, false);
    const LegsBench::Row row = bench().front();
    check(row.outcome == Outcome::cancelled, "the request is withdrawn");
    const std::int64_t counted =
        bench.at(0).counters().tokens_wasted + bench.at(1).counters().tokens_wasted;
    const std::int64_t in_memory = at < 349 ? 8 : 9;
    check(row.wasted_tokens == in_memory && counted == in_memory,
          "its prompt was computed in vain, and later its first token");
    for (const std::size_t i : {0, 1}) {
      check(bench.at(i).read(us(10000)).free_blocks == 100, "no block is held");
      const instance::Counters& counts = bench.at(i).counters();
      check(counts.entered == counts.completed + counts.cancelled + counts.handed_over || at < 238,
            "requests in the engine are conserved");
    }
  }
}

Offered random_legs(std::uint64_t seed) {
  sim::Draws draws(seed, sim::Stream::arrivals, 0);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(n)));
  };
  Offered offered;
  const auto random_server = [&] {
    InstanceGroup group = server();
    group.max_num_seqs = 1 + below(5);
    group.max_num_batched_tokens = 3 + below(3) * 20;
    group.num_kv_blocks = 11 + below(3) * 10;
    group.async_scheduling = below(2) == 0;
    group.kv_cache.prefix_caching = below(3) > 0;
    group.kv_cache.reserve_full_prompt = below(2) == 0;
    group.kv_cache.watermark = below(3) == 0 ? 0.1 : 0;
    if (below(3) == 0) group.scheduler = instance::Sjf{};
    if (below(3) == 0) {
      group.latency = instance::Linear{
          .beta0_us = 90, .beta_prefill_us = 7, .beta_decode_us = 2, .beta_context_us = 0.3};
    }
    return group;
  };
  offered.setup.prefill.clear();
  offered.setup.decode.clear();
  for (std::int64_t i = 0; i <= below(3); ++i) offered.setup.prefill.push_back(random_server());
  for (std::int64_t i = 0; i <= below(3); ++i) offered.setup.decode.push_back(random_server());
  offered.setup.transfer = Time{1 + below(400'000)};
  offered.setup.takes_blocks_first = below(3) == 0;
  Time at{0};
  for (std::int64_t i = 0; i < 5 + below(30); ++i) {
    at += below(3) == 0 ? Time{0} : Time{below(600'000)};
    const auto input = static_cast<std::int32_t>(1 + below(30));
    std::vector<workload::Segment> shared;
    if (input >= 8 && below(2) == 0) shared.push_back({1, 8});
    const Time cancelled = below(5) == 0 ? at + Time{1 + below(4'000'000)} : sim::kForever;
    offered.add(at, input, static_cast<std::int32_t>(below(13)), cancelled, below(5) > 0, shared);
  }
  return offered;
}

void jumps_change_nothing() {
  std::size_t completed = 0;
  std::size_t cancelled = 0;
  std::int32_t preempted = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Offered offered = random_legs(seed);
    const auto rows = offered.run();
    check(rows == offered.run(true), "jumps change nothing, case " + std::to_string(seed));
    for (const LegsBench::Row& row : rows) {
      check(row.outcome != Outcome::running, "every request ends, case " + std::to_string(seed));
      completed += row.outcome == Outcome::completed;
      cancelled += row.outcome == Outcome::cancelled;
      preempted += row.preemptions;
    }
  }
  check(completed > 3000 && cancelled > 300 && preempted > 300, "the cases vary");
}

}  // namespace

CASES(request_passes_both_instances, unread_prompt_stays_in_memory,
      leg_without_blocks_blocks_the_queue, shared_blocks_are_not_moved_again,
      withdrawal_frees_both_sides, jumps_change_nothing);
