#include "numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

namespace shale::conform {
namespace {

constexpr int kGuard = 0x5a, kNaN = 0xff;

std::uint16_t to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(u >> 16 | 0x40);
  return static_cast<std::uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float from_half(std::uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const float size = exponent == 31  ? (mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                                                      : std::numeric_limits<float>::infinity())
                     : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                     : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (h & 0x8000) != 0 ? -size : size;
}

std::uint16_t to_half(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14f) return static_cast<std::uint16_t>(sign + std::lrint(std::ldexp(size, 24)));
  int exponent = 0;
  const float fraction = std::frexp(size, &exponent);  // [0.5, 1); a rounding up carries into the exponent
  return static_cast<std::uint16_t>(sign + ((exponent + 13) << 10) + std::lrint(std::ldexp(fraction, 11)));
}

template <class T>
T cut(double value) {
  if (std::isnan(value)) return 0;
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(std::trunc(std::max(value, low)));
}

template <class T>
T get(const void* data, std::uint64_t k) {
  T t;
  std::memcpy(&t, static_cast<const std::byte*>(data) + k * sizeof t, sizeof t);
  return t;
}

template <class T>
void put(void* data, std::uint64_t k, T t) {
  std::memcpy(static_cast<std::byte*>(data) + k * sizeof t, &t, sizeof t);
}

}  // namespace

bool is_number(std::uint32_t dtype) {
  for (auto known : {SHALE_F64, SHALE_F32, SHALE_BF16, SHALE_F16, SHALE_I64, SHALE_I32, SHALE_I16, SHALE_I8, SHALE_U8})
    if (dtype == known) return true;
  return false;
}

bool is_float(std::uint32_t dtype) {
  return dtype == SHALE_F64 || dtype == SHALE_F32 || dtype == SHALE_BF16 || dtype == SHALE_F16;
}

double load(std::uint32_t dtype, const void* data, std::uint64_t k) {
  switch (dtype) {
    case SHALE_F64:
      return get<double>(data, k);
    case SHALE_F32:
      return static_cast<double>(get<float>(data, k));
    case SHALE_BF16:
      return static_cast<double>(std::bit_cast<float>(std::uint32_t{get<std::uint16_t>(data, k)} << 16));
    case SHALE_F16:
      return static_cast<double>(from_half(get<std::uint16_t>(data, k)));
    case SHALE_I64:
      return static_cast<double>(get<std::int64_t>(data, k));
    case SHALE_I32:
      return get<std::int32_t>(data, k);
    case SHALE_I16:
      return get<std::int16_t>(data, k);
    case SHALE_I8:
      return get<std::int8_t>(data, k);
    default:
      return get<std::uint8_t>(data, k);
  }
}

void store(std::uint32_t dtype, void* data, std::uint64_t k, double value) {
  switch (dtype) {
    case SHALE_F64:
      return put(data, k, value);
    case SHALE_F32:
      return put(data, k, static_cast<float>(value));
    case SHALE_BF16:
      return put(data, k, to_bf16(static_cast<float>(value)));
    case SHALE_F16:
      return put(data, k, to_half(static_cast<float>(value)));
    case SHALE_I64:
      return put(data, k, cut<std::int64_t>(value));
    case SHALE_I32:
      return put(data, k, cut<std::int32_t>(value));
    case SHALE_I16:
      return put(data, k, cut<std::int16_t>(value));
    case SHALE_I8:
      return put(data, k, cut<std::int8_t>(value));
    default:
      return put(data, k, cut<std::uint8_t>(value));
  }
}

std::uint64_t count(const shale_tensor& t) {
  std::uint64_t n = 1;
  for (std::uint32_t d = 0; d < t.ndim && d < SHALE_MAX_DIMS; ++d) n *= static_cast<std::uint64_t>(t.shape[d]);
  return n;
}

std::uint64_t bytes(const shale_tensor& t) { return count(t) * SHALE_DTYPE_BITS(t.dtype) / 8; }

bool contiguous(const shale_tensor& t) {
  std::int64_t stride = 1;
  for (std::uint32_t d = std::min<std::uint32_t>(t.ndim, SHALE_MAX_DIMS); d-- > 0;) {
    if (t.shape[d] != 1 && t.strides[d] != stride) return false;
    stride *= t.shape[d];
  }
  return true;
}

bool overlap(const shale_tensor& a, const shale_tensor& b) {
  const auto *x = static_cast<const std::byte*>(a.data), *y = static_cast<const std::byte*>(b.data);
  return bytes(a) != 0 && bytes(b) != 0 && x < y + bytes(b) && y < x + bytes(a);
}

std::string problem(const shale_tensor& t, bool write) {
  if (t.struct_size < sizeof t) return "has a struct_size shorter than ABI 0.1's";
  if (t.ndim > SHALE_MAX_DIMS) return "has too many dimensions";
  if (SHALE_DTYPE_BITS(t.dtype) == 0 || SHALE_DTYPE_BITS(t.dtype) % 8 != 0) return "is not of whole bytes";
  if (t.device_type != SHALE_DEVICE_CPU) return "is not of the lane's device";
  for (std::uint32_t d = 0; d < t.ndim; ++d)
    if (t.shape[d] < 0) return "has a negative shape";
  if (count(t) != 0 && t.data == nullptr) return "has no data";
  if (count(t) != 0 && !contiguous(t)) return "is not row-major without gaps";
  if (reinterpret_cast<std::uintptr_t>(t.data) % (SHALE_DTYPE_BITS(t.dtype) / 8) != 0)
    return "begins inside of an element";
  return write && t.read_only != 0 ? "is read-only" : "";
}

Guarded::Guarded(std::uint64_t size)
    : size_(size),
      whole_((size + kStrip - 1) / kStrip * kStrip + 2 * kStrip),
      memory_(static_cast<std::byte*>(std::aligned_alloc(kStrip, whole_))) {
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_.get(), kGuard, whole_);
  std::memset(data(), kNaN, size);
}

bool Guarded::intact() const {
  const auto guard = [](std::byte b) { return b == std::byte{kGuard}; };
  const auto *begin = memory_.get(), *end = begin + whole_;
  return std::all_of(begin, begin + kStrip, guard) && std::all_of(begin + kStrip + size_, end, guard);
}

Buffer::Buffer(std::uint32_t dtype, std::uint64_t n) : dtype_(dtype), n_(n), memory_(n * SHALE_DTYPE_BITS(dtype) / 8) {}

shale_tensor Buffer::tensor(bool read_only) const {
  SHALE_VAR(shale_tensor, t);
  t.dtype = dtype_, t.data = n_ == 0 ? nullptr : memory_.data();
  t.device_type = SHALE_DEVICE_CPU;
  t.ndim = 1, t.read_only = read_only;
  t.shape[0] = static_cast<std::int64_t>(n_), t.strides[0] = 1;
  return t;
}

bool Buffer::same_bits(const Buffer& other) const {
  return dtype_ == other.dtype_ && n_ == other.n_ &&
         std::memcmp(memory_.data(), other.memory_.data(), n_ * SHALE_DTYPE_BITS(dtype_) / 8) == 0;
}

Buffer Buffer::copy() const {
  Buffer b(dtype_, n_);
  std::memcpy(b.memory_.data(), memory_.data(), n_ * SHALE_DTYPE_BITS(dtype_) / 8);
  return b;
}

std::uint64_t Buffer::digest() const {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto* at = static_cast<const unsigned char*>(memory_.data());
  for (std::uint64_t k = 0; k < n_ * SHALE_DTYPE_BITS(dtype_) / 8; ++k) h = (h ^ at[k]) * 0x100000001b3u;
  return h;
}

}  // namespace shale::conform
