'use strict'
// @platformatic/kafka: https://github.com/platformatic/kafka

const { randomUUID } = require('node:crypto')
const { Reading, decode, encode, serve } = require('./serving')

const COMMITTED = { read_uncommitted: 0, read_committed: 1 }
const TOPIC = 2 // a resource
const SET = 0 // a change of a setting

class Driver {
  constructor (bootstrap) {
    this.inbox = []
    this.ready = import('@platformatic/kafka').then((library) => { this.library = library })
    this.common = { bootstrapBrokers: [bootstrap], retries: 8, retryDelay: 200 }
  }

  async make (kind, options) {
    await this.ready
    return new this.library[kind]({ clientId: kind.toLowerCase(), ...this.common, ...options })
  }

  errorName (error) {
    for (const part of parts(error)) if (part.apiId) return part.apiId
    return error.code ?? error.name
  }

  async admin () {
    this.connected ??= await this.make('Admin')
    return this.connected
  }

  hello () {
    return '@platformatic/kafka'
  }

  // -- producing and reading ---------------------------------------------------------------------------------

  async produce ({ topic, codec, acks, idempotent, records }) {
    const options = { acks: acks === 'all' ? -1 : Number(acks), compression: codec, idempotent, autocreateTopics: true }
    const producer = await this.make('Producer', options)
    try {
      return await send(producer, topic, records, options)
    } finally {
      await producer.close()
    }
  }

  /** The client only reads as a member of a group, so a read is a group of its own. */
  async read ({ topic, isolation, first, last, quiet_ms: quietMs }) {
    const consumer = await this.make('Consumer', { groupId: randomUUID(), autocommit: false })
    try {
      const offsets = Object.entries(first).map(([partition, offset]) => ({ topic, partition: Number(partition), offset: BigInt(offset) }))
      const isolationLevel = COMMITTED[isolation]
      const stream = await consumer.consume({ topics: [topic], mode: 'manual', offsets, isolationLevel, maxWaitTime: 200 })
      const reading = new Reading(last, quietMs)
      stream.on('data', (message) => { if (message.offset >= BigInt(first[message.partition] ?? 0)) reading.add(found(message)) })
      return await reading.done()
    } finally {
      await consumer.close(true)
    }
  }

  async offset_at ({ topic, partition, timestamp }) {
    const [found] = await (await this.admin()).listOffsets({
      topics: [{ name: topic, partitions: [{ partitionIndex: partition, timestamp: BigInt(timestamp) }] }]
    })
    return Number(found.partitions[0].offset)
  }

  // -- groups ------------------------------------------------------------------------------------------------

  async join ({ group, topics, protocol, assignor, session_ms: sessionTimeout, instance, isolation, client_id: clientId }) {
    const membership = protocol === 'consumer'
      ? { groupProtocol: 'consumer', groupRemoteAssignor: assignor || undefined }
      : { sessionTimeout, rebalanceTimeout: Math.max(sessionTimeout, 10000), heartbeatInterval: 500 }
    this.member = await this.make('Consumer', {
      clientId,
      groupId: group,
      groupInstanceId: instance ?? undefined,
      autocommit: false,
      ...membership
    })
    this.next = new Map()
    this.member.on('consumer:group:join', () => { this.next = new Map() })
    const stream = await this.member.consume({
      topics, mode: 'committed', fallbackMode: 'earliest', isolationLevel: COMMITTED[isolation], maxWaitTime: 200
    })
    stream.on('data', (message) => {
      const record = found(message)
      this.next.set(`${record.topic}\0${record.p}`, { topic: record.topic, partition: record.p, offset: message.offset + 1n, leaderEpoch: 0 })
      this.inbox.push(record)
    })
    stream.on('error', (error) => process.stderr.write(`stream: ${error.stack}\n`))
  }

  assigned () {
    return (this.member?.assignments ?? []).flatMap(({ topic, partitions }) => partitions.map((one) => [topic, one]))
  }

  taken () {
    return this.inbox.splice(0)
  }

  async commit () {
    await this.member.commit({ offsets: [...this.next.values()] })
  }

  async leave () {
    const member = this.member
    this.member = undefined
    await member?.close(true)
  }

  async committed ({ group, partitions }) {
    const topics = new Map()
    for (const [topic, partition] of partitions) {
      if (!topics.has(topic)) topics.set(topic, { name: topic, partitionIndexes: [] })
      topics.get(topic).partitionIndexes.push(partition)
    }
    const [kept] = await (await this.admin()).listConsumerGroupOffsets({ groups: [{ groupId: group, topics: [...topics.values()] }] })
    return partitions.map(([topic, partition]) => {
      const one = kept.topics.find(({ name }) => name === topic).partitions.find((offset) => offset.partitionIndex === partition)
      const offset = Number(one.committedOffset)
      return [topic, partition, offset < 0 ? null : offset, one.metadata ?? '']
    })
  }

  // -- administration ----------------------------------------------------------------------------------------

  async create_topic ({ topic, partitions, config }) {
    const configs = Object.entries(config).map(([name, value]) => ({ name, value }))
    await (await this.admin()).createTopics({ topics: [topic], partitions, replicas: 1, configs })
  }

  async partitions ({ topic }) {
    const metadata = await (await this.admin()).metadata({ topics: [topic], forceUpdate: true })
    return metadata.topics.get(topic).partitionsCount
  }

  async add_partitions ({ topic, total }) {
    await (await this.admin()).createPartitions({ topics: [{ name: topic, count: total, assignments: null }] })
  }

  async config ({ topic }) {
    const [{ configs }] = await (await this.admin()).describeConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic }] })
    return Object.fromEntries(configs.map(({ name, value }) => [name, value]))
  }

  async set_config ({ topic, config }) {
    const configs = Object.entries(config).map(([name, value]) => ({ name, configOperation: SET, value }))
    await (await this.admin()).incrementalAlterConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic, configs }] })
  }

  async delete_records ({ topic, before }) {
    const partitions = Object.entries(before).map(([partition, offset]) => ({ partition: Number(partition), offset: BigInt(offset) }))
    const [{ partitions: starts }] = await (await this.admin()).deleteRecords({ topics: [{ name: topic, partitions }] })
    return Object.fromEntries(starts.map(({ partition, lowWatermark }) => [partition, Number(lowWatermark)]))
  }

  async delete_topic ({ topic }) {
    await (await this.admin()).deleteTopics({ topics: [topic] })
  }

  async topics () {
    return (await this.admin()).listTopics()
  }

  async groups () {
    return [...(await (await this.admin()).listGroups()).keys()]
  }

  async group ({ group }) {
    const described = (await (await this.admin()).describeGroups({ groups: [group] })).get(group)
    return { state: described.state, members: [...described.members.values()].map(({ clientId }) => clientId).sort() }
  }

  async delete_group ({ group }) {
    await (await this.admin()).deleteGroups({ groups: [group] })
  }

  async reset () {
    await this.leave()
    this.inbox = []
  }
}

/** The error with all that caused it. */
function * parts (error) {
  yield error
  if (error.cause) yield * parts(error.cause)
  for (const one of error.errors ?? []) yield * parts(one)
}

async function send (producer, topic, records, options) {
  const placed = []
  // The client makes one batch of what it is given at once, and the broker takes a megabyte of it.
  for (let start = 0, end = 0; start < records.length; start = end) {
    for (let size = 0; end < records.length && (end === start || size < 400000); end++) {
      size += records[end].v?.length ?? 0
      if (end > start && size > 400000) break
    }
    const part = records.slice(start, end)
    const messages = part.map((record) => ({
      topic,
      partition: record.p,
      timestamp: BigInt(record.t),
      key: decode(record.k) ?? undefined,
      value: decode(record.v) ?? undefined,
      headers: new Map(record.h.map(([name, value]) => [Buffer.from(name), decode(value)]))
    }))
    const { offsets } = await producer.send({ messages, ...options })
    const next = new Map((offsets ?? []).map((one) => [one.partition, Number(one.offset)]))
    for (const record of part) {
      const offset = next.get(record.p) ?? -1
      if (offset >= 0) next.set(record.p, offset + 1)
      placed.push([record.p, offset])
    }
  }
  return placed
}

function found ({ topic, partition, offset, timestamp, key, value, headers }) {
  const h = [...headers].map(([name, one]) => [name.toString(), encode(one)])
  return { topic, p: partition, o: Number(offset), t: Number(timestamp), k: encode(key), v: encode(value), h }
}

serve(new Driver(process.argv[2]))
