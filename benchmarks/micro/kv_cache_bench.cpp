// Nanoseconds per operation of the KV pool and of the sums over decoding requests.
#include <memory>
#include <vector>

#include "instance/kv_cache/kv_cache.h"
#include "instance/step_loop/decoders.h"
#include "measure.h"
#include "workload/request_table.h"
#include "workload/requests.h"

using namespace spillway;

namespace {

constexpr std::int64_t kBlockSize_tokens = 16;
constexpr std::int32_t kInput_tokens = 512;
constexpr std::int32_t kOutput_tokens = 128;

std::shared_ptr<workload::Requests> make_requests(std::size_t size, bool shared) {
  auto source = std::make_shared<workload::Requests>();
  source->arrival.assign(size, sim::Time{0});
  source->input_tokens.assign(size, kInput_tokens);
  source->output_tokens.assign(size, kOutput_tokens);
  source->tenant.assign(size, 0);
  source->slo_class.assign(size, 0);
  source->tenants = {"default"};
  source->slo_classes = {"standard"};
  if (!shared) return source;
  source->segment_begin.push_back(0);
  for (std::size_t i = 0; i < size; ++i) {
    source->segments.push_back({i % 8, kInput_tokens});
    source->segment_begin.push_back(static_cast<std::uint32_t>(i + 1));
  }
  return source;
}

// A request enters with its prompt and leaves with its output; `shared`: its prompt is one of
// eight.
void enter_and_leave(const char* name, std::size_t size, bool shared) {
  const workload::RequestTable requests(make_requests(size, shared), {}, {}, sim::Time{0});
  instance::KvMemory memory({}, {}, false, 1 << 20, kBlockSize_tokens, requests);
  std::vector<instance::Holding> held(size);
  const auto enter = [&](std::size_t i) {
    const sim::RequestId id{i};
    const std::int64_t found = memory.find(id, kInput_tokens, false);
    held[i] = {};
    memory.admit(id, held[i], kInput_tokens - found, kInput_tokens, 0);
  };
  for (std::size_t i = 0; i < size; ++i) enter(i);
  std::size_t turn = 0;
  micro::measure(name, size, [&](std::size_t operations) {
    constexpr std::int64_t kAll_tokens = kInput_tokens + kOutput_tokens;
    for (std::size_t i = 0; i < operations; ++i) {
      memory.extend(sim::RequestId{turn}, held[turn], kAll_tokens, kAll_tokens);
      memory.leave(held[turn], kAll_tokens, kAll_tokens, true);
      enter(turn);
      turn = turn + 1 == size ? 0 : turn + 1;
    }
    micro::keep(memory);
  });
}

// A batch of `size`: jump to the next completion, remove the finished requests, let others join.
// One operation is one request.
void join_advance_pop(std::size_t size) {
  const workload::RequestTable requests(make_requests(size, false), {}, {}, sim::Time{0});
  instance::Decoders decoders(requests, instance::BlockSize(kBlockSize_tokens), false);
  micro::Sequence progress(kOutput_tokens - 1);
  std::uint32_t entry = 0;
  for (std::size_t i = 0; i < size; ++i) {
    decoders.join(sim::RequestId{i}, entry++, 1 + progress.next(), instance::Holding{}, 0);
  }
  std::int64_t blocks = 0;
  micro::measure("decoders_join_advance_pop", size, [&](std::size_t operations) {
    for (std::size_t done = 0; done < operations;) {
      decoders.advance(decoders.steps_to_finish());
      while (decoders.has_finished() && done < operations) {
        const instance::Decoders::Member left = decoders.pop_finished();
        decoders.join(left.id, entry++, 1, {.prefix = left.prefix}, 0);
        ++done;
      }
    }
    micro::keep(decoders);
  });
  micro::measure("decoders_new_blocks", size, [&](std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      blocks += decoders.new_blocks(0, 1 + static_cast<std::int64_t>(i % kOutput_tokens));
    }
    micro::keep(blocks);
  });
}

}  // namespace

int main() {
  for (const std::size_t size : {16, 256}) enter_and_leave("kv_enter_leave", size, false);
  for (const std::size_t size : {16, 256}) enter_and_leave("kv_enter_leave_shared", size, true);
  for (const std::size_t size : {16, 64, 256}) join_advance_pop(size);
}
