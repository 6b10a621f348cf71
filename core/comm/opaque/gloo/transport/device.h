// Stand-in (see ../context.h): devices and buffers are only held by pointer.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
