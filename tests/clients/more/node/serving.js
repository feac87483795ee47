'use strict'
// What the drivers in JavaScript share: the loop over commands, and records in JSON.
// tests/clients/peer.py says what the drivers are told and what they answer.

const readline = require('node:readline')

const encode = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))
const decode = (text) => (text === null ? null : Buffer.from(text, 'base64'))

/** Collects what a read finds until the last offset of every partition was seen, or nothing came for a while. */
class Reading {
  constructor (last, quietMs) {
    this.left = new Map(Object.entries(last).map(([partition, offset]) => [Number(partition), offset]))
    this.records = []
    this.quietMs = quietMs
    this.since = Date.now()
  }

  add (record) {
    this.since = Date.now()
    const last = this.left.get(record.p)
    if (last === undefined) return
    if (record.o >= last) this.left.delete(record.p)
    if (record.o <= last) this.records.push(record)
  }

  async done () {
    while (this.left.size > 0 && Date.now() - this.since < this.quietMs) await sleep(20)
    return this.records
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Answers commands with the methods of the driver until standard input ends. */
async function serve (driver) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    let answer
    try {
      if (typeof driver[command.do] !== 'function') answer = { error: 'Unsupported', message: command.do }
      else answer = { ok: (await driver[command.do](command)) ?? null }
    } catch (error) {
      process.stderr.write(`${command.do}: ${error.stack}\n`)
      answer = { error: driver.errorName(error), message: String(error.message) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  await driver.reset()
  process.exit(0)
}

module.exports = { Reading, decode, encode, serve, sleep }
